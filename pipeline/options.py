"""What the methods that put a pipeline together say of wrong arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from checkpoint.options import named_options
from pipeline.errors import PipelineError

C = TypeVar("C", bound=type)


def pipeline_options(cls: C) -> C:
    """`named_options`, for a class whose methods add steps: whatever value of an argument they refuse, they do it by a
    `PipelineError` that names the method, also where it is a constructor of an option's value that raises."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(cls, name, _refusing(member))
    return named_options(cls)


def _refusing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refusing(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except PipelineError:
            raise
        except ValueError as error:
            raise PipelineError(f"{method.__name__}: {error}") from error

    return refusing
