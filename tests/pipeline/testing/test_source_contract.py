"""The source contract suite finds what it is for: one broken source for each rule. Weir's own sources keep them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pipeline.testing import ContractBroken, TestingSource, check_source_contract
from sources import END, SequenceSource, Source, SourceBatch, SourceContext, SourceReader

SPLITS = 3
EACH = 10
RECORDS = [{"split": split, "n": n} for split in range(SPLITS) for n in range(EACH)]


class Numbers(Source):
    """Three splits with ten records each; its readers keep the contract."""

    bounded = True

    def __init__(self, reader: type[Reader] | None = None) -> None:
        self.reader = reader or Reader

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        return self.reader(ctx)


class Reader(SourceReader):
    def __init__(self, ctx: SourceContext) -> None:
        known = {split: at for state in ctx.restored or [] for split, at in state}
        self.positions = {split: known.get(split, 0) for split in range(SPLITS) if self.mine(split, ctx)}
        self.polled: list[Any] = []
        self.before = dict(self.positions)
        self.paused = False

    def mine(self, split: int, ctx: SourceContext) -> bool:
        return split % ctx.parallelism == ctx.subtask

    def poll(self, max_records: int, timeout: float) -> Any:
        self.polled, self.before = [], dict(self.positions)
        if self.paused:
            return None
        for split, at in self.positions.items():
            if at < EACH:
                self.polled = [{"split": split, "n": n} for n in range(at, min(EACH, at + max_records))]
                self.positions[split] = at + len(self.polled)
                return SourceBatch(self.polled, splits=split)
        return END

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        state = dict(self.before)
        for record in self.polled[:emitted]:
            state[record["split"]] = record["n"] + 1
        return [[split, at] for split, at in state.items()]

    def splits(self) -> Any:
        polled = {record["split"] for record in self.polled}
        return [split for split, at in self.positions.items() if at < EACH or split in polled]

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


# -- broken in one way each -----------------------------------------------------------------------------------


class HoldsLock(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class ValidateConnects(Numbers):
    def validate(self) -> None:
        self.client: Any = "connected"


class ResolvesAnew(Numbers):
    """Where "latest" is, is found out by each reader."""

    started = 0

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        reader = Reader(ctx)
        if ctx.restored is None and ctx.parallelism == 3:
            type(self).started += 1
            if type(self).started > 3:
                reader.positions = dict.fromkeys(reader.positions, 2)
        return reader


class SettlesWhatIsNotKept(Numbers):
    """Pickles, but isn't a plain value."""

    def resolve(self) -> Source:
        resolved = SettlesWhatIsNotKept(self.reader)
        resolved.begin = threading.Barrier  # type: ignore[attr-defined]
        return resolved


class KeepsAnother(Numbers):
    """Begins elsewhere at a later start."""

    begin = 0

    def resolve(self) -> Source:
        return KeepsAnother(self.reader)

    def resolution(self, resolved: Source) -> Any:
        return 2

    def with_resolution(self, resolution: Any) -> Source:
        resolved = KeepsAnother(self.reader)
        resolved.begin = resolution
        return resolved

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        reader = Reader(ctx)
        if not ctx.restored:
            reader.positions = dict.fromkeys(reader.positions, self.begin)
        return reader


class DefinedEverAnew(Numbers):
    """A setting is another at every start, so that each one would begin anew."""

    made = 0

    def start_settings(self) -> Any:
        DefinedEverAnew.made += 1
        return {"made": DefinedEverAnew.made}


class SaysUnbounded(Numbers):
    bounded = False


class TooMany(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        return super().poll(EACH, timeout)


class Tuples(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        return tuple(polled.values) if isinstance(polled, SourceBatch) else polled


class TimestampsMissing(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        if isinstance(polled, SourceBatch):
            polled.timestamps = [0]
        return polled


class Blocks(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        if polled is END:
            time.sleep(1.1)
        return polled


class EndsOnce(Reader):
    ended = False

    def poll(self, max_records: int, timeout: float) -> Any:
        if self.ended:
            return None
        polled = super().poll(max_records, timeout)
        self.ended = polled is END
        return polled


class NeverEnds(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        return None if polled is END and 2 in self.positions and len(self.positions) == 1 else polled


class LeavesOut(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        if isinstance(polled, SourceBatch) and len(polled) > 1:
            del polled.values[0]
        return polled


class IgnoresEmitted(Reader):
    """The commonest mistake: the position behind all that was polled."""

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return super().snapshot(checkpoint_id, len(self.polled))


class StartOfBatch(Reader):
    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return super().snapshot(checkpoint_id, 0)


class KeepsBatchWhilePaused(Reader):
    """A poll that returned None is no batch: `emitted` counts from it."""

    def poll(self, max_records: int, timeout: float) -> Any:
        return None if self.paused else super().poll(max_records, timeout)


class SnapshotRewinds(Reader):
    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        state = super().snapshot(checkpoint_id, emitted)
        self.positions = dict(state)
        return state


class SnapshotsObject(Reader):
    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        return object()


class SnapshotShared(Reader):
    shared: Any = None

    def snapshot(self, checkpoint_id: int, emitted: int) -> Any:
        self.shared = self.shared if self.shared is not None else []
        self.shared[:] = super().snapshot(checkpoint_id, emitted)
        return self.shared


class ReadsOnWhilePaused(Reader):
    def pause(self) -> None:
        pass


class PauseSkips(Reader):
    def resume(self) -> None:
        super().resume()
        for split, at in self.positions.items():
            if at < EACH:
                self.positions[split] = at + 1
                return


class CompletionSkips(Reader):
    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.positions = dict.fromkeys(self.positions, 0)


class OwnStateOnly(Reader):
    """Takes the first state for its own: right as long as the parallelism stays."""

    def __init__(self, ctx: SourceContext) -> None:
        super().__init__(ctx)
        known = dict(ctx.restored[0]) if ctx.restored else {}
        self.positions = {split: known.get(split, 0) for split in self.positions}
        self.before = dict(self.positions)


class AllSplits(Reader):
    def __init__(self, ctx: SourceContext) -> None:
        super().__init__(ctx)
        if ctx.restored and len(ctx.restored) > 1:
            known = {split: at for state in ctx.restored for split, at in state}
            self.positions = known
            self.before = dict(self.positions)


class Shuffles(Reader):
    def __init__(self, ctx: SourceContext) -> None:
        super().__init__(ctx)
        self.backwards = ctx.parallelism == 3 and ctx.restored is None

    def poll(self, max_records: int, timeout: float) -> Any:
        polled = super().poll(max_records, timeout)
        if self.backwards and isinstance(polled, SourceBatch):
            polled.values = polled.values[::-1]
        return polled


class SplitsMissing(Reader):
    def splits(self) -> Any:
        return []


class CloseFails(Reader):
    def close(self) -> None:
        raise RuntimeError("there is no connection yet")


THREADS_END = threading.Event()


class LeavesThread(Reader):
    def __init__(self, ctx: SourceContext) -> None:
        super().__init__(ctx)
        threading.Thread(target=THREADS_END.wait, daemon=True).start()


class NothingRestoredIsTheEnd(Reader):
    """Takes a restore without positions for one in which everything was read."""

    def __init__(self, ctx: SourceContext) -> None:
        super().__init__(ctx)
        if ctx.restored == []:
            self.positions = {}


class CloseCommits(Numbers):
    """What a closed reader has polled is gone, as from a queue."""

    taken = 0

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        outer = type(self)

        class Taking(Reader):
            def close(self) -> None:
                if self.paused and len(self.positions) == SPLITS and ctx.restored is None and self.polled:
                    outer.taken = 3

        reader = Taking(ctx)
        if outer.taken and ctx.restored is None:
            reader.positions[0] = outer.taken
        return reader


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("definition-pickles", HoldsLock),
        ("validate-changes-nothing", ValidateConnects),
        ("resolve-is-stable", ResolvesAnew),
        ("resolution-is-kept", SettlesWhatIsNotKept),
        ("resolution-is-kept", KeepsAnother),
        ("resolution-is-kept", DefinedEverAnew),
        ("bounded-tells-the-truth", SaysUnbounded),
        ("poll-keeps-max-records", TooMany),
        ("batch-is-well-formed", Tuples),
        ("batch-is-well-formed", TimestampsMissing),
        ("poll-returns-in-time", Blocks),
        ("end-is-for-ever", EndsOnce),
        ("end-comes-everywhere", NeverEnds),
        ("every-record-once", LeavesOut),
        ("every-record-once", NothingRestoredIsTheEnd),
        ("restore-gives-the-rest", IgnoresEmitted),
        ("restore-gives-the-rest", StartOfBatch),
        ("restore-gives-the-rest", KeepsBatchWhilePaused),
        ("snapshot-changes-nothing", SnapshotRewinds),
        ("snapshot-is-plain", SnapshotsObject),
        ("snapshot-stays-as-it-is", SnapshotShared),
        ("pause-holds", ReadsOnWhilePaused),
        ("pause-loses-nothing", PauseSkips),
        ("notifications-change-nothing", CompletionSkips),
        ("rescaling-deals-splits-anew", OwnStateOnly),
        ("rescaling-deals-splits-anew", AllSplits),
        ("order-within-a-split", Shuffles),
        ("splits-are-told", SplitsMissing),
        ("close-releases", CloseFails),
        ("close-releases", LeavesThread),
        ("close-moves-nothing", CloseCommits),
    ],
)
def test_a_broken_rule_is_found_and_named(rule: str, broken: Any) -> None:
    def factory() -> Source:
        return Numbers(broken) if issubclass(broken, SourceReader) else broken()

    THREADS_END.clear()
    try:
        with pytest.raises(ContractBroken) as found:
            check_source_contract(factory, RECORDS, wait=0.3)
    finally:
        THREADS_END.set()
    assert (found.value.rule, found.value.rule in str(found.value)) == (rule, True), found.value


GO_ON = threading.Event()


class Hangs(Reader):
    def poll(self, max_records: int, timeout: float) -> Any:
        GO_ON.wait()
        raise RuntimeError("the test is over")


def test_a_poll_that_never_returns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.testing.contracts.common.CALL_SECONDS", 0.5)
    try:
        with pytest.raises(ContractBroken, match="did not return") as found:
            check_source_contract(lambda: Numbers(Hangs), RECORDS, wait=0.3)
        assert found.value.rule == "poll-returns-in-time"
    finally:
        GO_ON.set()


def test_a_source_that_keeps_the_contract_passes() -> None:
    check_source_contract(Numbers)
    check_source_contract(Numbers, RECORDS, split_of=lambda record: record["split"])


def test_at_least_once_allows_records_again_after_a_restore_but_none_lost() -> None:
    check_source_contract(lambda: Numbers(StartOfBatch), delivery="at_least_once")
    with pytest.raises(ContractBroken, match="lost"):
        check_source_contract(lambda: Numbers(IgnoresEmitted), delivery="at_least_once")


def test_too_few_records_are_refused_rather_than_passed() -> None:
    with pytest.raises(ValueError, match="at least 12"):
        check_source_contract(lambda: SequenceSource(5))


def test_the_sequence_source_keeps_the_contract() -> None:
    check_source_contract(lambda: SequenceSource(40, partitions=4))


def test_the_testing_source_keeps_the_contract() -> None:
    check_source_contract(lambda: TestingSource(range(20)))
    check_source_contract(lambda: TestingSource(partitions=[range(10), range(10, 23), range(23, 30)]))
