"""`check_sink_contract`: whether a sink loses or doubles records, without Spark, in one test function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from pipeline.testing.contracts.common import Watchdog
from pipeline.testing.contracts.sink import definition, epochs, fencing, histories, restoring
from pipeline.testing.contracts.sink.rule import Rule
from pipeline.testing.contracts.sink.stage import SinkUnderTest, Terms

# Checked first: definition-pickles, validate-changes-nothing (definition.py). Told in whatever rule it shows:
# committables-need-a-committer, committables-are-plain, committer-state-is-plain, open-returns-what-is-left
# (sink_job.py), epochs-keep-their-order (stage.py).
RULES: Final[tuple[Rule, ...]] = (
    epochs.nothing_visible_before_commit,  # and commit-makes-visible
    epochs.empty_epochs_are_harmless,
    epochs.epochs_stay_apart,
    restoring.restore_commits_what_is_pending,
    epochs.aborted_epochs_join_the_next,
    restoring.commit_is_idempotent,
    restoring.close_delivers_nothing,
    restoring.uncheckpointed_output_vanishes,
    fencing.check_owner_comes_first,
    fencing.late_commits_double_nothing,
    restoring.interrupted_commits_are_finished,
    restoring.committer_state_stays_as_it_is,
    histories.old_writers_are_committed,
    definition.uncommitted_tells_the_truth,
    histories.rewind_goes_on,
    histories.new_histories_lose_nothing,
    histories.forks_leave_the_original_alone,
    epochs.refused_records_fail_the_attempt,
)


def _record(n: int) -> Any:
    return {"id": n, "key": f"k{n % 3}"}


def check_sink_contract(
    factory: Callable[[], SinkUnderTest],
    *,
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once",
    record: Callable[[int], Any] = _record,
    ordered: bool = True,
) -> None:
    """Run a sink through epochs, aborts, crashes at each step, rescaling and rewinds, and see what is visible.

    Args:
        factory: makes sink and target, anew for every check: what one check wrote must not be seen by the next.
        delivery: "at_least_once" allows repeated records, and records that are visible before their checkpoint.
        record: the n-th record, another one for each n. By default `{"id": n, "key": "k0" | "k1" | "k2"}`.
        ordered: `read` gives the records of one subtask in the order they were written in.

    Raises:
        ContractBroken: a rule is broken: which, what was observed and what to do.
    """
    watchdog = Watchdog()
    terms = Terms(factory, delivery == "exactly_once", record, ordered, watchdog)

    def suite() -> None:
        definition.check_definition(terms)
        for rule in RULES:
            rule.run(terms)

    watchdog.run(suite)
