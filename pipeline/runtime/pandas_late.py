"""pyarrow without pandas, until somebody imports pandas.

With the first array that it makes of a list pyarrow imports pandas, where that is installed, to tell its objects from
lists. That takes 0.3 s of CPU and 50 MB, and a process in which nobody uses pandas has no such objects.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow as pa

_PANDAS: Final = "pandas"


def import_late() -> None:
    """Have pyarrow do without pandas until that is imported, and know it from then on. Does nothing if it is, or if
    this was called before."""
    if _PANDAS in sys.modules or any(isinstance(one, _Finder) for one in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # pyarrow looks for pandas once
    finder.hides = False


class _Finder(MetaPathFinder):
    """Finds pandas as the others do, and tells pyarrow once it is loaded."""

    hides = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if self.hides:
            raise ModuleNotFoundError("pyarrow is to do without", name=_PANDAS)
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _tell_pyarrow(spec.loader)
                return spec
        return None


def _tell_pyarrow(loader: Loader) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        with suppress(ImportError):  # pyarrow does without one that is too old
            pa.nulls(0).to_pandas()  # it looks for pandas again where it can't do without

    loader.exec_module = exec_module  # type: ignore[method-assign]
