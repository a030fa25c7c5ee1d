"""How a plan, with the user's code in it, gets into the workers: pickled as Spark does it."""

from __future__ import annotations

import io
import os
import pickle
import socket
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from pyspark import cloudpickle as _cloudpickle

from checkpoint.codec.class_shapes import field_types
from checkpoint.codec.classes import install, is_pickled, name_of
from checkpoint.codec.record_forms import RecordForm
from checkpoint.codec.records import form_of, is_value_class
from checkpoint.errors import PermanentFailure
from pipeline.errors import PipelineError
from pipeline.plan import Plan, PlannedStep
from pipeline.runtime.class_pickler import ClassPickler

cloudpickle: Any = _cloudpickle  # untyped

_registering = threading.Lock()
"""The registry is the process's, and several jobs may be starting."""

_INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def pack_plan(plan: Plan) -> bytes:
    """
    Raises:
        PipelineError: something in a step can't be pickled; names the step and what it is.
    """
    users = _users_modules()
    with _registering, _by_value(users):
        for vertex in plan.vertices:
            for step in vertex.steps:
                _check(step, step.payload)
        for edge in plan.edges:
            for thing in (edge.partitioner.function, edge.partitioner.key):
                _check_edge(edge.downstream_step, thing)
        modules: set[str] = set()
        _dumps(plan, modules)
        own = {"__main__", *(module.__name__ for module in users)}
        return _dumps((plan, *_value_classes(modules & own)), set())


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    """What of these modules is pickled meanwhile goes by value; those that the user has registered stay so."""
    theirs = cloudpickle.list_registry_pickle_by_value()
    ours = [module for module in modules if module.__name__ not in theirs]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)


def unpack_plan(packed: bytes) -> Plan:
    """
    Raises:
        PermanentFailure: this host has not what the pipeline's code imports.
    """
    try:
        plan: Plan
        plan, classes, pickled, types = pickle.loads(packed)
    except (ImportError, AttributeError) as error:
        raise PermanentFailure(
            f"host {socket.gethostname()} can't load the pipeline's code: {type(error).__name__}: {error}. Install "
            f"what it imports for {sys.executable} on every host, or point PYSPARK_PYTHON to a Python that has it"
        ) from error
    install(classes, pickled, types)
    return plan


def _dumps(thing: Any, modules: set[str]) -> bytes:
    """`thing`, pickled. The names of the modules that its code was taken from are added to `modules`."""
    out = io.BytesIO()
    ClassPickler(out, modules).dump(thing)
    return out.getvalue()


def _value_classes(modules: set[str]) -> tuple[dict[str, type], list[str], dict[str, Mapping[str, Any]]]:
    """The classes that values of the pipeline may have, by name: those that lie in the modules of its code, so that
    workers know them though they lack the modules. And the names of those that are registered with pickle, and the
    types of fields by the name of the class."""
    classes: dict[str, type] = {}
    types: dict[str, Mapping[str, Any]] = {}
    for module in modules:
        for found in list(vars(sys.modules.get(module, ModuleType("none"))).values()):
            if is_value_class(found) and found not in classes.values():
                try:
                    name = name_of(found)
                    _dumps(found, set())
                except Exception:  # noqa: S112  # a value of it is refused where it is met
                    continue
                classes[name] = found
                try:
                    form = form_of(found)
                except TypeError:
                    continue  # as above, and then it is told why
                if isinstance(form, RecordForm):
                    types[name] = field_types(form)
    return classes, [name for name, cls in classes.items() if is_pickled(cls)], types


def _check(step: PlannedStep, payload: Any) -> None:
    try:
        _dumps(payload, set())
    except Exception as error:
        raise PipelineError(
            f"step {step.id!r}: {type(payload).__name__} can't be sent to the workers: {_reason(payload, error)}. "
            "Make clients, files, locks and threads in open(), not in __init__ or at module level"
        ) from error


def _check_edge(step: str, thing: Any) -> None:
    try:
        _dumps(thing, set())
    except Exception as error:
        raise PipelineError(
            f"the key or partitioner before step {step!r} can't be sent to the workers: {error}"
        ) from error


def _reason(payload: Any, error: Exception) -> str:
    """Names the attribute at fault, where it can be told."""
    for name, value in getattr(payload, "__dict__", {}).items():
        try:
            _dumps(value, set())
        except Exception as inner:
            return f"its attribute {name!r} ({type(value).__name__}): {inner}"
    return str(error)


def _users_modules() -> list[ModuleType]:
    """Modules that a worker may not find by name, so that what is used of them travels by value: whatever was loaded
    from a file that isn't installed (scripts, their helpers, test files)."""
    return [module for name, module in list(sys.modules.items()) if _is_users(name, module)]


def _is_users(name: str, module: Any) -> bool:
    if name.partition(".")[0] in ("__main__", "pipeline", "sources", "sinks", "formats", "checkpoint"):
        return False
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py") or getattr(module, "__name__", None) != name:
        return False
    real = os.path.realpath(path)
    return not real.startswith(_INSTALLED) and not {"site-packages", "dist-packages"} & set(real.split(os.sep))
