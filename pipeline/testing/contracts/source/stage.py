"""What the checks of a source are written with: making it and its readers, reading to the end, comparing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from checkpoint.codec import decode
from pipeline.testing.contracts.common import (
    ContractBroken,
    Watchdog,
    canonical,
    lost_and_doubled,
    pickled_copy,
    shown,
)
from pipeline.testing.contracts.source.reader import NEVER_WAIT, POLL_S, OpenReaders, ReaderUnderTest, Tape
from sources.source import Source

IDLE_POLLS: Final = 5
SLOW_S: Final = 1.0
"""A poll without records that takes longer blocks; told only if the fastest of several does, which noise can't do."""


class Stage:
    """One source over all its checks: what it must give, and in which order its splits came so far."""

    def __init__(
        self,
        factory: Callable[[], Source],
        expected: list[Any] | None,
        exact: bool,
        split_of: Callable[[Any], Any] | None,
        wait: float,
        watchdog: Watchdog,
    ) -> None:
        self.factory = factory
        self.expected: list[Any] = expected or []
        """If not `known`, what the first reader read."""
        self.known = expected is not None
        self.wait = wait
        self.bounded = True
        self._exact = exact
        self._split_of = split_of
        self._watchdog = watchdog
        self._open_readers = OpenReaders()
        self._order: dict[Any, list[str]] = {}

    def validate(self, source: Source) -> None:
        self._watchdog.call("validate-changes-nothing", "validate", NEVER_WAIT, source.validate)

    def resolve(self, source: Source) -> Any:
        return self._watchdog.call("resolve-is-stable", "resolve", NEVER_WAIT, source.resolve)

    def source(self) -> Source:
        """As the subtasks get it."""
        source = self.factory()
        self.validate(source)
        resolved: Source = pickled_copy(self.resolve(source), "the source")[1]
        return resolved

    # -- reading ------------------------------------------------------------------------------------------------

    def reader(
        self, source: Source, subtask: int = 0, parallelism: int = 1, states: Sequence[bytes] | None = None
    ) -> ReaderUnderTest:
        restored = None if states is None else [decode(data) for data in states]
        return ReaderUnderTest(source, subtask, parallelism, restored, self._watchdog, self._open_readers)

    def readers(self, source: Source, parallelism: int, states: Sequence[bytes] | None = None) -> list[ReaderUnderTest]:
        """One for each subtask."""
        return [self.reader(source, subtask, parallelism, states) for subtask in range(parallelism)]

    def poll_until_some(self, run: ReaderUnderTest) -> bool:
        """Whether a batch came before the end, in time."""
        deadline = time.monotonic() + self.wait
        while not run.ended:
            if run.poll():
                return True
            if time.monotonic() > deadline:
                break
        return False

    def finish(self, *runs: ReaderUnderTest, emitted: int = 0) -> None:
        """Read the rest: to the end, or until all records came and no more do.

        Args:
            emitted: so many records came from readers before.
        """
        wanted = len(self.expected) - emitted
        deadline = time.monotonic() + self.wait
        while not all(run.ended for run in runs):
            came = False
            for run in runs:
                if not run.ended:
                    came |= run.poll()
                    run.emit_all()
                    self._check_end(run)
            now = time.monotonic()
            if came or all(run.ended for run in runs):
                deadline = now + self.wait
            elif not self.bounded and sum(len(run.tape.values) for run in runs) >= wanted:
                break
            elif now > deadline:
                if self.bounded:
                    waiting = ", ".join(run.name for run in runs if not run.ended)
                    raise ContractBroken(
                        "end-comes-everywhere",
                        f"no record and no END within {self.wait:g} s from {waiting}",
                        "return END once nothing will ever come, in readers without a split at once; or set "
                        "bounded = False",
                    )
                break
        for run in runs:
            self._idle(run)

    def finish_and_close(self, *runs: ReaderUnderTest, emitted: int = 0) -> None:
        self.finish(*runs, emitted=emitted)
        for run in runs:
            run.close()

    def _check_end(self, run: ReaderUnderTest) -> None:
        if run.ended and not self.bounded:
            raise ContractBroken(
                "bounded-tells-the-truth",
                f"{run.name} returned END, but the source says bounded = False",
                "set bounded = True if the readers end by themselves, or return None as long as something may come",
            )

    def _idle(self, run: ReaderUnderTest) -> None:
        """Nothing is there: polls return in time, and END stays END."""
        fastest = float("inf")
        for _ in range(IDLE_POLLS):
            started = time.monotonic()
            came = run.poll(1, POLL_S)
            fastest = fastest if came else min(fastest, time.monotonic() - started)
        if SLOW_S < fastest < float("inf"):
            raise ContractBroken(
                "poll-returns-in-time",
                f"each of {IDLE_POLLS} polls with a timeout of {POLL_S:g} s took {run.name} {fastest:.1f} s",
                "wait for at most `timeout` seconds: a barrier has to wait as long as a poll does",
            )

    # -- comparing ----------------------------------------------------------------------------------------------

    def compare(self, rule: str, what: str, advice: str, tapes: Sequence[Tape], *, again: bool = False) -> None:
        """See that the tapes together have every record once, in the order of their splits.

        Args:
            again: there was a restore in between.
        """
        found = [value for tape in tapes for value in tape.values]
        lost, doubled = lost_and_doubled(self.expected, found)
        if again and not self._exact and not lost:
            known = {canonical(value) for value in self.expected}
            doubled = [each for each in doubled if each not in known]
        if lost or doubled:
            parts = [f"lost: {shown(lost)}"] if lost else []
            parts += [f"too often, or not expected: {shown(doubled)}"] if doubled else []
            raise ContractBroken(rule, f"{what}; {'; '.join(parts)}", advice)
        if self._exact or not again:
            self._compare_order(what, tapes)

    def _compare_order(self, what: str, tapes: Sequence[Tape]) -> None:
        order: dict[Any, list[str]] = defaultdict(list)
        for tape in tapes:
            if self._split_of is not None:
                for value in tape.values:
                    order[canonical(self._split_of(value))].append(canonical(value))
            else:
                for split, values in tape.splits.items():
                    order[split] += values
        for split, values in order.items():
            first = self._order.setdefault(split, values)
            if values != first and sorted(values) == sorted(first):
                at = next(i for i, pair in enumerate(zip(first, values, strict=True)) if pair[0] != pair[1])
                raise ContractBroken(
                    "order-within-a-split",
                    f"{what}; split {split} came in another order from record {at} on: {values[at]}, not {first[at]}",
                    "read a split by one reader at a time, in the same order every time",
                )
