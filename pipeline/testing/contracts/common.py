"""What the contract suites have in common: how a broken rule is told, how records are compared, a watchdog."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark import cloudpickle as _cloudpickle

from checkpoint.codec import encode
from checkpoint.metrics import Gauged, check_counter, check_metric

cloudpickle: Any = _cloudpickle  # untyped

CALL_SECONDS: Final = 60.0
"""No call of a connector may take longer: so long that only one that hangs does."""
_SHOWN: Final = 5
"""Records told of a list."""


class ContractBroken(AssertionError):
    """A connector breaks a rule of its contract."""

    def __init__(self, rule: str, observed: str, advice: str) -> None:
        super().__init__(f"the connector breaks the rule {rule!r}.\nObserved: {observed}\nWhat to do: {advice}")
        self.rule = rule
        """The rule's name, as docs/connectors.md lists it."""
        self.observed = observed
        self.advice = advice


class NoMetrics:
    """Takes what a connector counts, and forgets it; names must be known, as in a job."""

    def count(self, name: str, n: float = 1) -> None:
        check_counter(name)

    def gauge(self, name: str, value: Gauged) -> None:
        check_metric(name)


class Watchdog:
    """Runs a suite in a thread of its own, so that a call that never returns is told, too. All calls of a connector
    come from this one thread, as in a job."""

    def __init__(self) -> None:
        self._calls = 0
        self._current: tuple[str, str, str] | None = None

    def call(self, rule: str, what: str, advice: str, function: Callable[[], Any]) -> Any:
        """Call the connector: `rule` is broken if that never returns."""
        self._calls += 1
        self._current = (rule, what, advice)
        try:
            return function()
        finally:
            self._current = None

    def run(self, suite: Callable[[], None]) -> None:
        raised: list[BaseException] = []

        def target() -> None:
            try:
                suite()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=target, name="weir-contract", daemon=True)
        thread.start()
        while thread.is_alive():
            seen = self._calls
            thread.join(CALL_SECONDS)
            current = self._current
            if thread.is_alive() and self._calls == seen and current is not None:
                rule, what, advice = current
                raise ContractBroken(rule, f"{what} did not return within {CALL_SECONDS:g} s", advice)
        if raised:
            raise raised[0]


def canonical(value: Any) -> str:
    """The same for equal records, whatever the order of their fields, and for tuples and lists."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{key!r}: {canonical(item)}" for key, item in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(canonical, value)) + "]"
    return repr(value)


def wire(value: Any, rule: str, what: str) -> bytes:
    try:
        return encode(value)
    except TypeError as error:
        raise ContractBroken(
            rule,
            f"{what} can't be part of a checkpoint: {error}",
            "return values of Python's plain types, as docs/state.md lists them",
        ) from error


def pickled_copy(definition: Any, kind: str) -> tuple[bytes, Any]:
    """The definition as subtasks get it."""
    advice = "keep clients, files, locks and connections out of the definition; make them in the subtask"
    try:
        data: bytes = cloudpickle.dumps(definition)
        return data, cloudpickle.loads(data)
    except Exception as error:
        raise ContractBroken(
            "definition-pickles", f"{kind} can't be pickled and unpickled: {error!r}", advice
        ) from error


def check_unchanged(definition: Any, before: bytes, method: str) -> None:
    if cloudpickle.dumps(definition) != before:
        raise ContractBroken(
            f"{method}-changes-nothing",
            f"the definition was another one after {method}()",
            f"let {method}() leave the object as it is: it runs on the driver, and subtasks get what is pickled",
        )


def lost_and_doubled(wanted: Iterable[Any], found: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Records that are missing, and those that are there too often or should not be there."""
    want, have = Counter(map(canonical, wanted)), Counter(map(canonical, found))
    return list((want - have).elements()), list((have - want).elements())


def shown(records: list[str]) -> str:
    more = f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return f"{', '.join(records[:_SHOWN])}{more}"
