"""Which of several signs of a failure becomes its cause."""

from __future__ import annotations

import pytest

from pipeline.runtime.driver.failures import AttemptFailed, FirstCause, Sign, own_word
from pipeline.runtime.protocol import Failed, FailureKind


def failed(kind: FailureKind, **more: str) -> Failed:
    return Failed(kind=kind, **{"message": "no", "traceback": "", "where": "in partition 0", "step": None, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sign", "wait"), [(Sign.OWN_WORD, 0.0), (Sign.LOST, 0.1), (Sign.LOST_PEER, 0.3), (Sign.SPARK, 0.3)]
)
def test_after_a_sign_a_better_explanation_is_waited_for(sign: Sign, wait: float) -> None:
    first = FirstCause()
    assert (first.settled(1e9), first.first_at) == (None, None)
    failure = AttemptFailed("why")
    first.note(failure, sign, 100.0)
    if wait:
        assert first.settled(100.0 + wait - 0.01) is None
    assert first.settled(100.0 + wait) is failure
    assert first.first_at == 100.0


def test_the_best_informed_sign_counts_and_the_first_of_its_kind() -> None:
    first = FirstCause()
    signs = (Sign.LOST_PEER, Sign.LOST, Sign.LOST, Sign.SPARK)
    failures = [AttemptFailed(f"{i}") for i in range(len(signs))]
    for i, (failure, sign) in enumerate(zip(failures, signs, strict=True)):
        first.note(failure, sign, 100.0 + i / 100)
    assert first.failure is failures[1]
    assert first.due_at == pytest.approx(100.11)
    first.note(AttemptFailed("late"), Sign.SPARK, 200.0)
    assert first.due_at == pytest.approx(100.11)
    assert first.first_at == 100.0


@pytest.mark.parametrize(
    ("kind", "sign", "permanent"),
    [
        (FailureKind.ERROR, Sign.OWN_WORD, False),
        (FailureKind.PERMANENT, Sign.OWN_WORD, True),
        (FailureKind.DAMAGED, Sign.OWN_WORD, False),
        (FailureKind.PEER, Sign.LOST_PEER, False),
        (FailureKind.CANCELLED, Sign.SPARK, False),
    ],
)
def test_a_subtasks_word_counts_less_where_the_cause_lies_elsewhere(
    kind: FailureKind, sign: Sign, permanent: bool
) -> None:
    cause, worth = own_word("map[0]", failed(kind), True)
    assert (worth, cause.permanent) == (sign, permanent)


def test_what_a_subtask_says_is_told_whole() -> None:
    assert str(own_word("map[0]", failed(FailureKind.ERROR), True)[0]) == "subtask map[0] failed: no"
    cause, _ = own_word("map[0]", failed(FailureKind.ERROR, step="total", traceback="Trace"), True)
    assert str(cause) == "subtask map[0] failed: no\nin step 'total'\nTrace"


@pytest.mark.parametrize(
    ("kind", "newest_is_restored", "damaged"),
    [
        (FailureKind.DAMAGED, True, "no"),
        (FailureKind.DAMAGED, False, None),
        (FailureKind.ERROR, True, None),
    ],
)
def test_the_restored_checkpoint_is_damaged_only_while_it_is_the_newest(
    kind: FailureKind, newest_is_restored: bool, damaged: str | None
) -> None:
    assert own_word("map[0]", failed(kind), newest_is_restored)[0].damaged == damaged
