"""What handles of states say to code that takes them for what they hold: `self.total += 1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from checkpoint.state.errors import StateAccessError

_BINARY: Final[Mapping[str, str]] = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "matmul": "@",
}
_COMPARING: Final[Mapping[str, str]] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def attribute_of(handle: Any) -> str:
    """How the operator's code calls the state."""
    _, _, rest = handle._name.partition("'")
    return "self." + str(rest.partition("'")[0])


def _refusing(usage: str) -> Callable[..., NoReturn]:
    """A method that says how to write what calls it: `usage`, in which `{0}` stands for the attribute."""

    def method(self: Any, *args: object) -> NoReturn:
        raise StateAccessError(
            f"{self._name} is a state and not what it holds; write {usage.format(attribute_of(self))}"
        )

    return method


def refuse_as_value(cls: type) -> None:
    """Have instances of a class that holds one value, as `value`, refuse to be taken for it."""
    held = "{0}.value"
    for name, sign in _BINARY.items():
        setattr(cls, f"__{name}__", _refusing(f"{held} {sign} …"))
        setattr(cls, f"__r{name}__", _refusing(f"… {sign} {held}"))
        setattr(cls, f"__i{name}__", _refusing(f"{held} {sign}= …"))
    for name, sign in _COMPARING.items():
        setattr(cls, f"__{name}__", _refusing(f"{held} {sign} …"))
    for name in ("bool", "int", "float", "index", "complex", "neg", "pos", "abs", "invert", "round", "iter", "len"):
        setattr(cls, f"__{name}__", _refusing(held))
    for name in ("format", "contains", "reversed", "trunc", "floor", "ceil"):
        setattr(cls, f"__{name}__", _refusing(held))
    for name in ("getitem", "setitem", "delitem"):
        setattr(cls, f"__{name}__", _refusing(held + "[…]"))
    for of in (list, dict, set, str, bytearray):
        for name in dir(of):
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, _refusing(f"{held}.{name}(…)"))
    cls.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]


def refuse_operators(cls: type, usages: Mapping[str, str]) -> None:
    """Have instances of a class refuse some operators, each with what to write instead."""
    for name, usage in usages.items():
        setattr(cls, f"__{name}__", _refusing(usage))
    cls.__hash__ = object.__hash__  # type: ignore[method-assign, assignment]


def refuse_methods(cls: type, of: type, usage: str) -> None:
    """Have instances of a class refuse the methods of another that they don't have, and `value`."""
    for name in dir(of):
        if not name.startswith("_") and not hasattr(cls, name):
            setattr(cls, name, _refusing(usage))
    if not hasattr(cls, "value"):
        cls.value = property(_refusing(usage))  # type: ignore[attr-defined]
