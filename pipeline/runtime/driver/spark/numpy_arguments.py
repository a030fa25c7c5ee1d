"""What pyspark asks of every argument of a call into the JVM: whether it is one of numpy's.

To know whether numpy is there it imports `pyspark.testing`, and with that pandas: 0.3 s of CPU at the start of a
session, and 30 MB of the driver.
"""

from __future__ import annotations

from typing import Any, Protocol


class _Converter(Protocol):
    def can_convert(self, obj: Any) -> bool: ...


def ask_of_numpys_only() -> None:
    """Have pyspark ask only where the argument's class derives from one of numpy's. May be called again."""
    from pyspark.sql import types

    for converter in (types.NumpyScalarConverter, types.NumpyArrayConverter):
        if not hasattr(converter.can_convert, "__wrapped__"):
            _guard(converter)


def _guard(converter: type[_Converter]) -> None:
    ask = converter.can_convert

    def can_convert(self: _Converter, obj: Any) -> bool:
        return any(cls.__module__.partition(".")[0] == "numpy" for cls in type(obj).__mro__) and ask(self, obj)

    can_convert.__wrapped__ = ask  # type: ignore[attr-defined]
    converter.can_convert = can_convert  # type: ignore[method-assign]
