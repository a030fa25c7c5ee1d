"""Whom a reader waits for while its splits can't be opened."""

from __future__ import annotations

from typing import Any

import pytest

from checkpoint.outage import Outage
from checkpoint.waiting import Waiting
from sources import KafkaSource
from sources.kafka import opening
from sources.kafka.errors import KafkaUnavailable


@pytest.mark.parametrize(
    ("refused", "credentials", "kind"),
    [(True, True, "credentials"), (True, False, "brokers"), (False, False, "brokers")],
)
def test_only_what_is_wrong_with_credentials_is_told_to_be(
    refused: bool, credentials: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.5
        return now

    waiting, kinds = Waiting(clock), set()

    class Away:
        def __init__(self, *options: Any) -> None: ...

        def __enter__(self) -> Any:
            kinds.update(kind for _, _, kind in waiting.report())
            raise KafkaUnavailable("no", refused, credentials)

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(opening, "Cluster", Away)
    monkeypatch.setattr(opening, "_TRY_AGAIN_S", 0.0)
    options: Any = KafkaSource("127.0.0.1:1", topics=["t"]).options
    nothing: Any = None
    with pytest.raises(KafkaUnavailable, match="no"):
        opening.open_when_up(options, nothing, nothing, Outage(waiting, "the brokers", 30.0, clock))
    assert kinds == {kind}
