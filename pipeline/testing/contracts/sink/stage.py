"""What the rules of a sink are written with: a job with the sink, what its target should hold, and the story so far."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from checkpoint.counted import counted
from pipeline.testing.contracts.common import ContractBroken, Watchdog, canonical, lost_and_doubled, shown
from pipeline.testing.contracts.sink.sink_job import Attempt, Checkpoint, Interrupted, SinkJob
from sinks.sink import Sink

UNSET: Final = object()


@dataclass
class SinkUnderTest:
    """A sink with a target of its own, new or empty, and how a reader outside sees it.

    Args:
        sink: the sink.
        read: all that is visible now, in the form of the records written, and in order if the target has one.
        refused: a record that the sink can't deliver: writing it, or the barrier behind it, must raise. Left out: not
            checked.
    """

    sink: Sink
    read: Callable[[], Sequence[Any]]
    refused: Any = UNSET


@dataclass(frozen=True)
class Terms:
    """What the suite was called with."""

    factory: Callable[[], SinkUnderTest]
    exact: bool
    """Exactly once."""
    record: Callable[[int], Any]
    ordered: bool
    watchdog: Watchdog


class Stage:
    """A rule on trial: a job with the sink, how far its source has come, and what should be visible."""

    def __init__(self, terms: Terms, subject: SinkUnderTest, folder: Path, rule: str, advice: str) -> None:
        self.rule = rule
        self.advice = advice
        self.story: list[str] = []
        """What was done, for the error."""
        self.exact = terms.exact
        self.record = terms.record
        self._terms = terms
        self.subject = subject
        self.job = SinkJob(subject.sink, folder, f"contract-{uuid.uuid4().hex[:8]}")
        self.position = 0
        """The next record's number."""
        self._positions: dict[int, int] = {}
        self.attempt: Attempt = self.do("start", self.job.start)
        self._parallelisms = {1}

    # -- what a job does ----------------------------------------------------------------------------------------

    def restart(self, parallelism: int = 1, restore: Checkpoint | None = None, **options: Any) -> None:
        self._parallelisms.add(parallelism)
        origin = "nothing" if restore is None else f"checkpoint {restore.id}"
        self.attempt = self.do(
            f"start from {origin} with {counted(parallelism, 'subtask')}",
            lambda: self.job.start(parallelism, restore, **options),
        )
        self.position = 0 if restore is None else self._positions[restore.id]

    def write(self, count: int) -> None:
        first, self.position = self.position, self.position + count
        values = [self.record(n) for n in range(first, self.position)]
        keys = [value.get("key") if isinstance(value, dict) else None for value in values]
        self.do(f"records {first} to {self.position - 1}", lambda: self.attempt.write(values, keys))

    def barrier(self) -> Checkpoint:
        checkpoint: Checkpoint = self.do(f"barrier {self.job.next_id}", lambda: self.attempt.barrier())
        self._positions[checkpoint.id] = self.position
        return checkpoint

    def complete(self, checkpoint: Checkpoint) -> None:
        self.do(f"checkpoint {checkpoint.id} complete", lambda: self.attempt.complete(checkpoint))

    def commit_all(self) -> None:
        self.do("commits", lambda: self.attempt.commit_all())

    def checkpoint(self) -> Checkpoint:
        checkpoint = self.barrier()
        self.complete(checkpoint)
        self.commit_all()
        return checkpoint

    def commit_unnoticed(self) -> None:
        """Committed, but the process dies before anybody is told."""
        for subtask, order in self.attempt.orders():
            self.do("commit", partial(self.attempt.commit, subtask, order, notify=False))

    def close(self) -> None:
        self.do("close", lambda: self.attempt.close())

    def die(self) -> None:
        self.story.append("SIGKILL")
        self.attempt.die()

    def do(self, what: str, action: Callable[[], Any]) -> Any:
        self.story.append(what)
        try:
            return self._terms.watchdog.call(self.rule, what, "no call may wait for ever", action)
        except (ContractBroken, Interrupted):
            raise
        except Exception as error:
            raise ContractBroken(
                self.rule, f"raised {error!r}. After: {' → '.join(self.story)}", self.advice
            ) from error

    # -- what is seen of it -------------------------------------------------------------------------------------

    def visible(self) -> list[Any]:
        return list(self._terms.watchdog.call(self.rule, "read", "let `read` return", self.subject.read))

    def expect_nothing_new(self, upto: int) -> None:
        """Nothing of what isn't committed may be visible."""
        if not self.exact:
            return
        _, early = lost_and_doubled(map(self.record, range(upto)), self.visible())
        if early:
            self.broken(f"visible too early: {shown(early)}")

    def expect(self, wanted: Sequence[int] | range) -> None:
        """Exactly these records are visible (at least once: all of them are)."""
        records = [self.record(n) for n in wanted]
        found = self.visible()
        lost, doubled = lost_and_doubled(records, found)
        if not self.exact:
            known = {canonical(record) for record in records}
            doubled = [each for each in doubled if each not in known]
        if lost or doubled:
            parts = [f"lost: {shown(lost)}"] if lost else []
            parts += [f"too often, or never written: {shown(doubled)}"] if doubled else []
            self.broken("; ".join(parts))
        in_order = self._terms.ordered and self.exact and self._parallelisms == {1}
        if in_order and list(map(canonical, found)) != list(map(canonical, records)):
            self.rule = "epochs-keep-their-order"
            self.advice = "commit committables in the order given, and keep the order of the records in each"
            self.broken(f"one subtask's records came as {shown(list(map(canonical, found)))}")

    def broken(self, observed: str) -> NoReturn:
        raise ContractBroken(self.rule, f"{observed}. After: {' → '.join(self.story)}", self.advice)


@contextmanager
def open_stage(terms: Terms, rule: str, advice: str) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="weir-contract-") as folder:
        stage = Stage(terms, terms.factory(), Path(folder) / "job", rule, advice)
        try:
            yield stage
        except BaseException:
            stage.attempt.die()
            raise
        stage.close()


def fails(action: Callable[[], Any]) -> bool:
    """Whether it raises; whatever it is, the attempt would fail with it."""
    try:
        action()
    except ContractBroken:
        raise
    except Exception:
        return True
    return False
