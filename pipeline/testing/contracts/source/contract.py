"""`check_source_contract`: whether a source loses or doubles records, without Spark, in one test function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from pipeline.testing.contracts.common import Watchdog
from pipeline.testing.contracts.source import definition, pausing, reading, rescaling, snapshots
from pipeline.testing.contracts.source.stage import Stage
from sources.source import Source

# Beside each check stands what it looks for. The rules that any reader may break, in whatever check, are told as soon
# as it shows: in reader.py create_reader-returns, poll-returns-in-time, poll-keeps-max-records, batch-is-well-formed,
# splits-are-told, end-is-for-ever, snapshot-returns, snapshot-is-plain, close-releases; in stage.py
# poll-returns-in-time of idle readers, end-comes-everywhere, bounded-tells-the-truth, order-within-a-split.
CHECKS: Final[tuple[Callable[[Stage], None], ...]] = (
    definition.definition_stays_as_it_is,  # definition-pickles, validate-changes-nothing, resolve-is-stable
    reading.one_reader_reads_all,  # every-record-once
    reading.every_attempt_reads_the_same,  # every-record-once, resolve-is-stable
    reading.later_starts_read_the_same,  # resolution-is-kept
    reading.nothing_to_restore_is_the_start,  # every-record-once
    snapshots.restore_gives_the_rest,  # snapshot-changes-nothing, restore-gives-the-rest
    snapshots.snapshots_stay_as_they_are,  # snapshot-stays-as-it-is
    snapshots.empty_batches_begin_behind_all_before,  # pause-holds, restore-gives-the-rest
    pausing.pause_loses_nothing,  # pause-holds, pause-loses-nothing
    snapshots.notifications_change_nothing,  # notifications-change-nothing
    rescaling.splits_are_dealt_anew,  # rescaling-deals-splits-anew
    rescaling.splits_are_dealt_anew_again_and_again,  # rescaling-deals-splits-anew
    reading.close_moves_nothing,  # close-moves-nothing
)


def check_source_contract(
    factory: Callable[[], Source],
    expected: Iterable[Any] | None = None,
    *,
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once",
    split_of: Callable[[Any], Any] | None = None,
    wait: float = 30.0,
) -> None:
    """Run a source's readers through everything that a job may do to them, and see that every record comes once.

    Args:
        factory: makes the definition, anew for every check; each one must give the same records. A few dozen are best
            (at least 12), and they should lie in several splits if the source has splits.
        expected: the records, in any order. Needed if the source is unbounded; by default what a first reader reads.
        delivery: "at_least_once" allows that records come again after a restore.
        split_of: a function of the record; records of one split must keep their order. By default the ids that the
            batches name, if the reader has `splits()`.
        wait: seconds within which the next records, or the end, must come.

    Raises:
        ContractBroken: a rule is broken: which, what was observed and what to do.
        ValueError: the source can't be checked with these arguments.
    """
    watchdog = Watchdog()
    records = None if expected is None else list(expected)
    stage = Stage(factory, records, delivery == "exactly_once", split_of, wait, watchdog)

    def suite() -> None:
        for check in CHECKS:
            check(stage)

    watchdog.run(suite)
