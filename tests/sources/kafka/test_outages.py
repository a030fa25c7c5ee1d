"""Brokers that are down, and brokers that refuse: what a source and a sink wait for, say, and give up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from deadlines import eventually
from hypothesis import given
from hypothesis import strategies as st
from passwords import rotate

from checkpoint.outage import REFUSAL_S, Outage, Refusals
from checkpoint.waiting import Waiting
from pipeline.broker.security import Security
from pipeline.testing import KafkaBroker
from sinks import KafkaSink
from sinks.kafka import retries
from sinks.kafka.errors import CommitFailed
from sinks.sink import CommitterContext, Lineage, SinkBatch, WriterContext
from sources import KafkaSource, SourceBatch, SourceContext
from sources.kafka import KafkaUnavailable

USER = "job"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


EVENTS = st.lists(st.tuples(st.sampled_from(["away", "refused", "over"]), st.floats(0, 8)), max_size=30)


@given(EVENTS, st.none() | st.floats(1, 30))
def test_an_outage_is_told_as_long_as_it_lasts_and_given_up_when_its_time_is_up(
    events: list[tuple[str, float]], timeout: float | None
) -> None:
    clock = Clock()
    waiting = Waiting(clock)
    outage = Outage(waiting, "brokers", timeout, clock)
    since = refused = None
    for event, passes in events:
        clock.now += passes
        if event == "over":
            outage.over()
            since = refused = None
        else:
            since = clock.now if since is None else since
            refused = None if event == "away" else clock.now if refused is None else refused
            goes_on = outage.away() if event == "away" else outage.refused()
            in_time = timeout is None or clock.now - since < timeout
            tolerated = refused is None or clock.now - refused < REFUSAL_S
            assert goes_on == (in_time and tolerated)
            if clock.now - since >= 2 and tolerated:
                ((what, seconds, kind),) = waiting.report()
                assert (what.split(",")[0], seconds) == ("brokers", clock.now - since)
                assert kind == ("brokers" if event == "away" else "credentials")
        assert outage.lasts == (since is not None)
        if since is None:
            assert waiting.report() == []


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30))
def test_refusals_count_once_they_have_gone_on_for_a_while(passes: list[int]) -> None:
    clock = Clock()
    refusals = Refusals(Waiting(clock), "brokers", clock)
    first = None
    for seconds in passes:
        clock.now += seconds
        first = clock.now if first is None or seconds > 60 else first
        assert refusals.count() == (clock.now - first >= REFUSAL_S)


# -- real brokers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    users = {"admin": "admin-password", USER: "old-password"}
    with KafkaBroker.start(kind="native", security=Security(users=users, tls=False, acls=False)) as started:
        yield started


@pytest.fixture
def topic(broker: KafkaBroker, unique_name: Callable[[str], str]) -> str:
    name = unique_name("outage")
    broker.create_topic(name)
    return name


def open_reader(broker: KafkaBroker, topic: str, waiting: Waiting, **options: Any) -> Any:
    source = KafkaSource(broker.bootstrap_servers, topics=[topic], config=broker.client_config(USER), **options)
    return source.create_reader(SourceContext("p", "in", 0, 1, NoMetrics(), waiting=waiting))


def sink(broker: KafkaBroker, topic: str, **options: Any) -> KafkaSink:
    return KafkaSink(broker.bootstrap_servers, topic, config=broker.client_config(USER), **options)


def test_a_running_source_waits_for_its_brokers_and_says_so(broker: KafkaBroker, topic: str) -> None:
    broker.produce(topic, [{"id": 1}])
    waiting = Waiting()
    reader = open_reader(broker, topic, waiting)
    values: list[Any] = []

    def polls() -> None:
        batch = reader.poll(100, 0.01)
        if isinstance(batch, SourceBatch):
            values.extend(batch.values)

    def until(condition: Callable[[], bool]) -> None:
        eventually(lambda: polls() or condition())

    try:
        until(lambda: len(values) == 1)
        broker.kill()
        until(lambda: any("Kafka brokers" in what and "source 'in'" in what for what, *_ in waiting.report()))
        restarted = threading.Thread(target=broker.restart)
        restarted.start()
        until(lambda: not waiting.report())
        restarted.join()
        broker.produce(topic, [{"id": 2}])
        until(lambda: len(values) == 2)
    finally:
        reader.close()


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._AUTHENTICATION])
def test_a_running_source_is_refused_once_that_has_gone_on_for_a_while(
    broker: KafkaBroker, topic: str, code: int
) -> None:
    """Whatever else it hears from its client meanwhile, of this broker or of others."""
    reader = open_reader(broker, topic, Waiting())
    clock = Clock()
    reader._health._refusals = Refusals(Waiting(clock), "brokers", clock)
    try:
        for clock.now in (0.0, 5.0, 9.0):  # a broker that has just started
            reader._health.on_error(KafkaError(code, "refused"))
            reader._health.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"))
            broker.produce(topic, [{"id": 1}])
            eventually(lambda: bool(reader.poll(100, 0.1)))
            clock.now += 1.0
        with pytest.raises(RuntimeError, match="the Kafka client failed: refused"):
            reader._health.on_error(KafkaError(code, "refused"))
    finally:
        reader.close()


def test_an_outage_of_a_running_source_is_given_up_when_its_timeout_is_over(broker: KafkaBroker, topic: str) -> None:
    reader = open_reader(broker, topic, Waiting(), outage_timeout=3)
    try:
        broker.kill()
        with pytest.raises(KafkaUnavailable, match=r"could be reached for 3 s \(outage_timeout\)"):
            eventually(lambda: bool(reader.poll(100, 0.01)))
    finally:
        broker.restart()
        reader.close()


@pytest.mark.sample(1 / 4)
def test_a_restart_during_an_outage_waits_for_the_brokers(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """Reader, writer and committer are made while nobody is there."""
    broker.produce(topic, [{"id": 1}])
    broker.kill()
    waiting = Waiting()
    made: dict[str, Any] = {}

    def make_reader() -> None:
        made["reader"] = open_reader(broker, topic, waiting)

    def make_writer() -> None:
        context = WriterContext("p", "out", 0, 1, None, NoMetrics(), waiting)  # type: ignore[arg-type]
        made["writer"] = sink(broker, topic).create_writer(context)

    def open_committer() -> None:
        made["committer"] = committer(broker, topic, waiting)
        made["committer"].open([])
        made["open"] = True

    threads = [threading.Thread(target=each, daemon=True) for each in (make_reader, make_writer, open_committer)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(waiting.report()) == 3)
        told = " ".join(what for what, *_ in waiting.report())
        assert all(part in told for part in ("to read from", "to write to", "to commit to"))
        assert not made.keys() - {"committer"}
    finally:
        broker.restart()
    for thread in threads:
        thread.join(90)
    assert waiting.report() == []
    assert made.keys() == {"reader", "writer", "committer", "open"}
    for one in ("reader", "committer"):
        made[one].close()


def test_brokers_that_are_back_may_not_know_of_all_topics_yet(
    broker: KafkaBroker, unique_name: Callable[[str], str]
) -> None:
    topic, waiting = unique_name("later"), Waiting()
    broker.kill()
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(open_reader(broker, topic, waiting)), daemon=True)
    thread.start()
    try:
        eventually(lambda: bool(waiting.report()))
    finally:
        broker.restart()
    time.sleep(1)  # for it to look and miss the topic
    broker.create_topic(topic)
    thread.join(60)
    made[0].close()


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_commit_waits_for_an_outage_however_long_it_tries_other_things(
    broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 5.0)
    waiting = Waiting()
    one = committer(broker, topic, waiting)
    one.open([])
    broker.kill()
    done = threading.Event()
    thread = threading.Thread(target=lambda: (one.commit(1, []), done.set()), daemon=True)
    thread.start()
    try:
        eventually(lambda: any("to commit to (sink 'out')" in what for what, *_ in waiting.report()))
        assert not done.is_set()
    finally:
        broker.restart()
    assert done.wait(90)
    assert waiting.report() == []
    one.close()
    limited = committer(broker, topic, waiting, "limited", outage_timeout=1)
    limited.open([])
    broker.kill()
    try:
        with pytest.raises(CommitFailed, match="tried for 1 s"):
            limited.commit(1, [])
        assert waiting.report() == []
    finally:
        broker.restart()
        limited.close()


@pytest.mark.slow
@pytest.mark.parametrize("config", [{}, pytest.param({"linger.ms": 500}, marks=pytest.mark.matrix)])
def test_a_writer_that_nobody_flushes_notices_that_brokers_are_away_and_back(
    broker: KafkaBroker, topic: str, config: dict[str, int]
) -> None:
    """Its queue is never full, nor, with some linger, empty."""
    waiting = Waiting()
    context = WriterContext("p", "out", 0, 1, None, NoMetrics(), waiting)  # type: ignore[arg-type]
    settings = {**broker.client_config(USER), **config}
    made = KafkaSink(broker.bootstrap_servers, topic, delivery="none", config=settings)
    writer = made.create_writer(context)
    batch = SinkBatch([{"x": 1}], [None], [None])
    writing = threading.Event()
    writing.set()

    def write() -> None:
        while writing.is_set():
            writer.write_batch(batch)
            time.sleep(0.01)

    thread = threading.Thread(target=write, daemon=True)
    try:
        broker.kill()
        thread.start()
        eventually(lambda: any("to write to (sink 'out')" in what for what, *_ in waiting.report()))
        broker.restart()
        eventually(lambda: not waiting.report())
        assert thread.is_alive()
    finally:
        writing.clear()
        broker.restart()
        thread.join(60)
        writer.close()


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_password_that_is_refused_after_a_rotation_is_an_error_wherever_it_shows(
    broker: KafkaBroker, topic: str
) -> None:
    broker.produce(topic, [{"id": i, "x": "x" * 1000} for i in range(2000)])
    busy = open_reader(broker, topic, Waiting(), rate_limit=1)  # has fetched what it may not hand over yet
    paused = open_reader(broker, topic, Waiting())
    eventually(lambda: bool(busy.poll(1, 0.1)))
    eventually(lambda: bool(paused.poll(1, 0.1)))
    paused.pause()
    one = committer(broker, topic, Waiting())
    one.open([])
    rotate(broker, "old-password", "new-password")
    context = WriterContext("p", "out", 0, 1, None, NoMetrics())  # type: ignore[arg-type]
    parts: dict[str, Callable[[], Any]] = {
        "busy": lambda: eventually(lambda: busy.poll(1, 0.01) and False, timeout=150),
        "paused": lambda: eventually(lambda: bool(paused.poll(1, 0.01)), timeout=150),
        "committer": lambda: one.commit(1, []),
        "new committer": lambda: committer(broker, topic, Waiting(), "another").open([]),
        "new reader": lambda: open_reader(broker, topic, Waiting()),
        "new writer": lambda: sink(broker, topic).create_writer(context),
    }
    said: dict[str, str] = {}

    def run(name: str) -> None:
        try:
            parts[name]()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"

    try:
        threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(160)
        assert said.keys() == parts.keys()
        assert all("authentication" in text.lower() for text in said.values()), said
    finally:
        rotate(broker, "new-password", "old-password")
        busy.close()
        paused.close()
        one.close()


def committer(broker: KafkaBroker, topic: str, waiting: Waiting, name: str = "", **options: Any) -> Any:
    ctx = CommitterContext(
        pipeline=topic + name,
        sink_id="out",
        writer=0,
        lineage=Lineage("L"),
        restored_checkpoint=0,
        restored_state=None,
        rewind=False,
        ignore_earlier_output=True,
        staging=None,  # type: ignore[arg-type]
        metrics=NoMetrics(),
        check_owner=lambda: None,
        waiting=waiting,
    )
    return sink(broker, topic, **options).create_committer(ctx)


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...
