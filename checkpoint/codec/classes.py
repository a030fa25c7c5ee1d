"""Classes whose values are carried, by name: how bytes say which class a value has, and how it is found again.

A name is `module:qualname`. A script has the name of its file, however it is run: `python orders.py`, `weir run
orders.py` and `import orders` all give `orders:Order`. With `python -m` it is the name that was run.

Nothing is ever imported because bytes ask for it. A class is found among those that came with the pipeline (`install`),
or in a module that is loaded already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)

SCRIPT_PREFIX: Final = "weir_script_"
"""`weir run` loads a script as a module of this name and the script's."""

_installed: dict[str, type] = {}
_names: dict[type, str] = {}
"""Names of the installed classes, which may lie in no module of this process."""
_types: dict[str, Mapping[str, Any]] = {}
"""Of the installed classes, the types of the fields (see `checkpoint.codec.type_shapes`): what annotations mean can be
told only where the module is."""
_pickled: set[type] = set()
forms: Final[dict[type, Any]] = {}
"""What `checkpoint.codec.records` has found out about classes; forgotten when it may have changed."""


def register_pickle(cls: C) -> C:
    """Let values of this class be pickled where they are sent or kept. Can be used as a decorator.

    Without it nothing is ever pickled. It is for classes that Weir can't take apart, of libraries for example:

        register_pickle(shapely.Point)

    The class has to be found by its name, as all classes of values. Whoever can write to the checkpoints can then run
    code in the job, as with anything that is unpickled. An instance comes back as pickle makes it, which is for the
    class to get right; a subclass has to be registered by itself.

    Raises:
        ValueError: `cls` is no class.
    """
    if not isinstance(cls, type):
        raise ValueError(f"register_pickle: cls must be a class, not {cls!r}")
    _pickled.add(cls)
    forms.clear()
    return cls


def is_pickled(cls: type) -> bool:
    """Whether `register_pickle` was called with this very class."""
    return cls in _pickled


def install(
    classes: Mapping[str, type], pickled: Iterable[str], types: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Make the classes of a pipeline known to this process, which may lack the modules that they were defined in.

    Args:
        classes: by the name that they have where the pipeline was defined.
        pickled: names of those that are registered with `register_pickle`.
        types: by the name of the class, those of its fields.
    """
    for name, cls in classes.items():
        _installed[name] = cls
        _names[cls] = name
        _types.pop(name, None)
    _types.update(types or {})
    _pickled.update(classes[name] for name in pickled)
    forms.clear()


def name_of(cls: type) -> str:
    """The name to find the class by.

    Raises:
        TypeError: it could not be found again; the message says what to do.
    """
    known = _names.get(cls)
    if known is not None and _installed.get(known) is cls:
        return known
    if "<locals>" in cls.__qualname__:
        raise TypeError(
            "its class is defined within a function, where it could not be found again; define it at the top of a "
            "module"
        )
    name = f"{module_name(cls.__module__)}:{cls.__qualname__}"
    found = class_of(name)
    if found is cls:
        return name
    if found is not None:
        raise TypeError(f"there is another class called {name}; give each a name of its own")
    raise TypeError(
        f"its class is called {name}, and there is none under this name in the modules that came with the pipeline. "
        "Define the class at the top of the script, or of a module that the script imports it from"
    )


def class_of(name: str) -> type | None:
    """The class that `name_of` gave the name of; `None` if it isn't here."""
    return _installed.get(name) or _in_modules(name)


def types_of(name: str) -> Mapping[str, Any] | None:
    """The types of the fields of an installed class, if they came with it."""
    return _types.get(name)


def module_name(name: str) -> str:
    """What a module is called in names of classes."""
    if name != "__main__":
        return name.removeprefix(SCRIPT_PREFIX)
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return name if file is None else PurePath(file).stem


def _in_modules(name: str) -> type | None:
    module, _, qualname = name.partition(":")
    for each in (module, SCRIPT_PREFIX + module, "__main__"):
        found: object = sys.modules.get(each)
        if found is None or module_name(each) != module:
            continue
        for part in qualname.split("."):
            # Not `getattr`: a module may have a function that makes what is asked for.
            found = getattr(found, "__dict__", {}).get(part)
        if isinstance(found, type) and found.__module__ == each and found.__qualname__ == qualname:
            return found
    return None
