"""Values as instances of a class that the user gives: strictly, with the path to what doesn't fit.

A dataclass, `msgspec.Struct`, `TypedDict`, or any other type that msgspec knows is made by msgspec, a pydantic model by
pydantic. Neither makes a number of a text or the other way round. What JSON has no type for is read from its text:
dates and times (RFC 3339), UUIDs, Decimals (from numbers, too, digit by digit), enums by value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from formats.errors import NotInFormat
from formats.json_values import dumps, loads, loads_all, long_fractions


def check(value_type: Any) -> None:
    """
    Raises:
        ValueError: it is no type that values can be turned into.
    """
    if _is_model(value_type):
        return
    import msgspec

    try:
        msgspec.json.Decoder(value_type)
    except Exception as error:
        raise ValueError(
            "value_type must be a dataclass, msgspec.Struct, TypedDict, pydantic model, or a type made of these, not "
            f"{value_type!r}: {error}"
        ) from error


def from_json(value_type: Any) -> Callable[[bytes], Any]:
    """
    Raises (the function):
        ValueError: it is no JSON text as `json_values.loads` takes it; `NotInFormat`: it doesn't fit the type.
    """
    make = _maker(value_type)

    def made(text: bytes) -> Any:
        loads(text)
        return make(text)

    return made


def from_json_all(value_type: Any) -> Callable[[Sequence[bytes]], list[Any]]:
    """The same for several texts.

    Raises (the function):
        TypeError: one of them is `None`.
    """
    make = _maker(value_type)

    def made(texts: Sequence[bytes]) -> list[Any]:
        loads_all(texts)
        return list(map(make, texts))

    return made


def _maker(value_type: Any) -> Callable[[bytes], Any]:
    """Of texts that `json_values` takes: of a key that comes twice, for example, the makers would take the last one."""
    if _is_model(value_type):
        return _checked(lambda text: _model(value_type, text))
    import msgspec

    return _checked(msgspec.json.Decoder(value_type).decode)


def from_value(value_type: Any) -> Callable[[Any], Any]:
    """
    Raises (the function):
        NotInFormat: the value, as another format has read it, doesn't fit the type.
    """
    if _is_model(value_type):
        return _checked(lambda value: value_type.model_validate(value, strict=True))
    import msgspec

    return _checked(lambda value: msgspec.convert(value, value_type))


def from_json_value(value_type: Any) -> Callable[[Any], Any]:
    """As `from_value`, for what a JSON text has held: dates and the like are texts.

    Raises (the function):
        NotInFormat: the value doesn't fit the type.
    """
    if not _is_model(value_type):
        return from_value(value_type)
    make = _maker(value_type)  # pydantic takes no texts for dates in Python's values
    return lambda value: make(dumps(value))


def _is_model(value_type: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value_type, type) and issubclass(value_type, pydantic.BaseModel)


def _model(cls: Any, text: bytes) -> Any:
    """
    Raises:
        NotInFormat: pydantic, which makes a Decimal of a number by way of a float, has lost digits.
    """
    value = cls.model_validate_json(text, strict=True)
    if long := long_fractions(text):
        found = set(_decimals(value))
        for path, number in long.items():
            rounded = Decimal(repr(float(number)))
            if rounded != number and rounded in found:
                raise NotInFormat(
                    f"{number} has more digits than pydantic takes of a JSON number for a Decimal; it must be a text - "
                    f"at `{path}`"
                )
    return value


def _decimals(value: Any) -> Iterator[Decimal]:
    """All that an instance of a model holds."""
    if type(value) is Decimal:
        yield value
    elif isinstance(value, dict):
        yield from _decimals([*value, *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _decimals(item)
    elif hasattr(value, "__dict__"):
        yield from _decimals({**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})})


def _checked(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def made(given: Any) -> Any:
        try:
            return make(given)
        except NotInFormat:
            raise
        except Exception as error:
            # What __post_init__ or a validator raises is said of the record as well.
            raise NotInFormat(_reason(error)) from error

    return made


def _reason(error: Exception) -> str:
    import msgspec

    problems = getattr(error, "errors", None)
    if not callable(problems):
        return str(error) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
    found = [f"{one['msg']} - at `{'.'.join(('$', *map(str, one['loc'])))}`" for one in problems(include_url=False)]
    return "; ".join(found)
