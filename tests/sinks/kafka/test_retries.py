"""What a committer tries again after trouble with Kafka, for how long, and what it says when it gives up."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_sink_helpers import NoMetrics

from checkpoint.storage.fencing import Fenced
from checkpoint.waiting import Waiting
from sinks import CommitterContext, Lineage
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.errors import CommitFailed, CommitRefused
from sinks.kafka.retries import Retries

AWAY = KafkaError._TRANSPORT
FENCED = KafkaError.PRODUCER_FENCED
REFUSED = KafkaError._AUTHENTICATION
OTHER = KafkaError.CONCURRENT_TRANSACTIONS


class Committing:
    """A committer whose step meets one trouble after the other, on a clock that only moves when it waits."""

    def __init__(self, *troubles: int | BaseException, outage_timeout: float | None = None, took: float = 0.0) -> None:
        """
        Args:
            troubles: error codes, or exceptions, in order; then the step succeeds.
            took: seconds until a step fails.
        """
        self.troubles = list(troubles)
        self.took = took
        self.now = 1_000.0
        self.slept: list[float] = []
        self.aborts: list[bool] = []
        """For each producer that was discarded, whether its transaction was to be aborted."""
        self.owned = True
        self.waiting = Waiting(lambda: self.now)
        options = CommitterOptions("host:1", {}, "job-out-3", "out", "markers", 1_000, "fail", outage_timeout)
        ctx: Any = CommitterContext(
            "job", "out", 3, Lineage("L1"), 0, None, False, False, None, NoMetrics(), self._check_owner,  # type: ignore[arg-type]
            waiting=self.waiting,
        )  # fmt: skip
        self.retries = Retries(options, ctx, "markers", self.aborts.append, lambda: self.now, self._sleep)

    def run(self) -> str:
        return self.retries.run(self._step, "commit checkpoint 7 of")

    def _step(self) -> str:
        if not self.troubles:
            return "done"
        self.now += self.took
        trouble = self.troubles.pop(0)
        raise trouble if isinstance(trouble, BaseException) else KafkaException(KafkaError(trouble, "as the test says"))

    def _check_owner(self) -> None:
        if not self.owned:
            raise Fenced("a newer driver owns the job")

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def always(trouble: int) -> list[int]:
    return [trouble] * 100_000


def test_a_step_without_trouble_is_done_once_and_its_producer_stays() -> None:
    one = Committing()
    assert one.run() == "done"
    assert (one.aborts, one.slept) == ([], [])


def test_each_try_has_a_new_producer_and_waits_longer_than_the_one_before_up_to_two_seconds() -> None:
    one = Committing(*[OTHER] * 8)
    assert one.run() == "done"
    assert one.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert one.aborts == [False] * 8  # the next producer ends what they left open


def test_trouble_that_lasts_is_given_up_after_a_minute_and_its_transaction_aborted() -> None:
    one = Committing(*always(OTHER))
    with pytest.raises(CommitFailed, match=r"could not commit checkpoint 7 of writer 3: .*tried for 60 s.*host:1 run"):
        one.run()
    assert 60 <= one.now - 1_000 < 62
    assert one.aborts == [*[False] * (len(one.aborts) - 1), True]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "READ on group 'job-out-3'"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "READ on topic 'markers'"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "WRITE on transactional id 'job-out-3'"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "correct config"),
    ],
)
def test_what_another_try_does_not_help_with_ends_at_once_with_what_to_do(code: int, advice: str) -> None:
    one = Committing(code)
    with pytest.raises(CommitFailed, match=advice):
        one.run()
    assert (one.aborts, one.slept) == ([True], [])


def test_being_fenced_is_tried_again_three_times() -> None:
    assert Committing(*[FENCED] * 3).run() == "done"
    one = Committing(*[FENCED] * 4)
    with pytest.raises(CommitFailed, match=r"transactional id 'job-out-3' meanwhile, 4 times"):
        one.run()
    assert one.aborts == [False, False, False, True]


def test_what_ended_it_is_told_though_it_was_fenced_before() -> None:
    with pytest.raises(CommitFailed, match="READ on group"):
        Committing(*[FENCED] * 3, KafkaError.GROUP_AUTHORIZATION_FAILED).run()


def test_other_trouble_does_not_count_as_being_fenced() -> None:
    assert Committing(FENCED, OTHER, FENCED, OTHER, FENCED, OTHER).run() == "done"


def test_what_brokers_find_after_an_outage_is_counted_afresh() -> None:
    assert Committing(*[FENCED] * 3, AWAY, *[FENCED] * 3).run() == "done"
    nearly_a_minute = [OTHER] * 33
    one = Committing(*nearly_a_minute, AWAY, *nearly_a_minute[:28])
    assert one.run() == "done"
    assert one.now - 1_000 > 110


def test_an_outage_is_waited_for_without_an_end_and_told() -> None:
    one = Committing(*[AWAY] * 10_000)
    one.troubles.append(CommitRefused("the brokers are back, and refuse"))
    with pytest.raises(CommitRefused):
        one.run()
    assert one.now - 1_000 > 10_000
    assert [what for what, *_ in one.waiting.report()] == ["the Kafka brokers at host:1 to commit to (sink 'out')"]
    assert one.run() == "done"
    assert one.waiting.report() == []


def test_an_outage_that_lasts_longer_than_it_may_ends_the_commit_and_is_no_longer_told() -> None:
    one = Committing(*always(AWAY), outage_timeout=10.0)
    with pytest.raises(CommitFailed, match=r"tried for 10 s"):
        one.run()
    assert 10 <= one.now - 1_000 < 13
    assert one.aborts[-1]
    assert not any(one.aborts[:-1])
    assert one.waiting.report() == []


def test_an_outage_begins_when_the_try_began_that_met_it() -> None:
    one = Committing(*always(AWAY), outage_timeout=10.0, took=30.0)
    with pytest.raises(CommitFailed):
        one.run()
    assert one.slept == []


def test_brokers_that_do_not_let_the_client_in_are_believed_after_a_while() -> None:
    one = Committing(*always(REFUSED))
    with pytest.raises(CommitFailed, match=r"don't let this client in: correct the user, password"):
        one.run()
    assert 10 <= one.now - 1_000 < 13
    assert one.aborts[-1]
    assert Committing(*[REFUSED] * 4).run() == "done"  # a broker that starts may not know the user yet


@pytest.mark.parametrize("error", [CommitRefused("a record"), OSError("a segment is damaged"), KeyboardInterrupt()])
def test_whatever_is_no_trouble_with_kafka_is_raised_at_once_and_leaves_no_transaction_open(
    error: BaseException,
) -> None:
    one = Committing(error)
    with pytest.raises(type(error)):
        one.run()
    assert (one.aborts, one.slept) == ([True], [])


@pytest.mark.parametrize("trouble", [OTHER, AWAY, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_who_has_lost_the_job_does_not_try_again(trouble: int) -> None:
    one = Committing(trouble)
    one.owned = False
    with pytest.raises(Fenced):
        one.run()
    assert len(one.aborts) == 1
    assert one.slept == []
