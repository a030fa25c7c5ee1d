"""Spark's pickler, with what it lacks for classes of values that workers can't import."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, get_type_hints

from pyspark.cloudpickle import cloudpickle as _cloudpickle

_cloudpickle_module: Any = _cloudpickle  # untyped
_Base: Any = _cloudpickle_module.Pickler
_CONFIG = (
    *("frozen", "eq", "order", "array_like", "gc", "omit_defaults", "repr_omit_defaults"),
    *("forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field"),
)
"""Options of Structs, as `__struct_config__` and `defstruct` call them."""
_MSGSPEC_CACHE = "__msgspec_cache__"
"""Where msgspec keeps what it knows of a dataclass, `TypedDict` or named tuple that it has read. It can't be pickled,
and is made anew where it is missing."""


class ClassPickler(_Base):  # type: ignore[misc]  # untyped
    """Notes the modules of what goes by value. Sends Structs by value, of which cloudpickle loses the fields, and the
    types of fields instead of their names, which mean nothing where the module isn't there."""

    def __init__(self, file: BinaryIO, modules: set[str]) -> None:
        """`modules`: their names are added to it."""
        super().__init__(file)
        self._modules = modules

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) or callable(obj):
            self._modules.add(getattr(obj, "__module__", None) or "")
        msgspec = sys.modules.get("msgspec")
        if (
            msgspec is not None
            and isinstance(obj, type(msgspec.Struct))
            and obj is not msgspec.Struct
            and not _cloudpickle_module._should_pickle_by_reference(obj)
        ):
            return _reduced_struct(obj)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > 2 and "__annotations__" in vars(obj):
            (attributes, slots), hints = reduced[2], _hints(obj)
            annotations = {name: hints.get(name, hint) for name, hint in vars(obj)["__annotations__"].items()}
            attributes = {name: item for name, item in attributes.items() if name != _MSGSPEC_CACHE}
            return (*reduced[:2], ({**attributes, "__annotations__": annotations}, slots), *reduced[3:])
        return reduced


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:
        return {}  # a name that is there for type checkers only


def _reduced_struct(cls: Any) -> Any:
    """As cloudpickle does it with other classes: an empty class first, then what may refer to it."""
    from msgspec import structs

    hints, own = _hints(cls), vars(cls).get("__annotations__", {})
    found = {field.name: field for field in structs.fields(cls)} if own else {}
    fields = [(name, found[name].default, found[name].default_factory) for name in own if name in found]
    parameters = inspect.signature(cls).parameters
    config = {name: getattr(cls.__struct_config__, name) for name in _CONFIG}
    config["kw_only"] = any(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name, *_ in fields)
    config["rename"] = {name: found[name].encode_name for name, *_ in fields}
    left_out = {"__module__", "__annotations__", "__slots__", "__weakref__", "__dict__", "__post_init__", *found}
    attributes = {name: item for name, item in vars(cls).items() if name not in left_out}
    attributes["__qualname__"] = cls.__qualname__
    attributes["__annotations__"] = {name: hints.get(name, hint) for name, hint in own.items()}
    post_init = vars(cls).get("__post_init__")
    tracked = _cloudpickle_module._get_or_create_tracker_id(cls)
    made = (cls.__name__, cls.__bases__, cls.__module__, fields, config, post_init is not None, tracked)
    return _make_struct, made, (attributes, post_init), None, None, _fill_struct


def _make_struct(
    name: str,
    bases: tuple[type, ...],
    module: str,
    fields: list[tuple[str, Any, Any]],
    config: dict[str, Any],
    post_init: bool,
    tracked: str,
) -> Any:
    """`tracked`: tells, in a process that has the class already, that it is this one."""
    from msgspec import NODEFAULT, defstruct, field

    given: list[Any] = [
        (each, Any)
        if default is NODEFAULT and factory is NODEFAULT
        else (each, Any, field(default=default) if factory is NODEFAULT else field(default_factory=factory))
        for each, default, factory in fields
    ]
    cell: list[Callable[[Any], None]] = []
    namespace = {"__post_init__": lambda self: cell[0](self), "__weir_post_init__": cell} if post_init else {}
    made = defstruct(name, given, bases=bases, module=module, namespace=namespace, **config)
    return _cloudpickle_module._lookup_class_or_track(tracked, made)


def _fill_struct(cls: Any, state: tuple[dict[str, Any], Any]) -> None:
    attributes, post_init = state
    cell = vars(cls).get("__weir_post_init__")
    if cell is not None and not cell:
        cell.append(post_init)
    for name, item in attributes.items():
        setattr(cls, name, item)
