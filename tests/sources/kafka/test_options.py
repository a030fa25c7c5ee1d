"""What a KafkaSource refuses before anything runs, and what it tells the client; no broker needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st

from sources import DeadLetter, KafkaSource
from sources.kafka.options import OWNED, KafkaOptions
from sources.kafka.splits import Split, owner, to_state

MIB = 1024 * 1024
NO_ADDRESSES = (
    *("", " ", "kafka://localhost:9092", "http://localhost:9092", "localhost:9092 other:9092", "localhost:9092;other"),
    *("localhost:", "localhost:port", "localhost:9092,", "localhost:9092/topic", ["localhost:9092"], None, 9092),
)
ADDRESSES = (
    *(
        "localhost:9092",
        "localhost",
        "a:9092,b:9092",
        "a:9092, b:9092",
        "127.0.0.1:9092",
        "[::1]:9092",
        "[fe80::1%eth0]",
    ),
    *("PLAINTEXT://localhost:9092", "sasl_ssl://broker-1.example.org:9093", "my_broker:9092"),
)


@pytest.mark.parametrize("servers", ADDRESSES)
def test_addresses_are_taken_as_the_client_takes_them(servers: str) -> None:
    assert KafkaSource(servers, topics=["orders"]).options.servers == servers


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({"servers": servers}, "servers must be addresses") for servers in NO_ADDRESSES),
        ({"topics": None}, "either topics=.* or pattern"),
        ({"pattern": "t.*"}, "either topics=.* or pattern"),
        ({"topics": "orders"}, "topics must be a list"),
        ({"topics": []}, "topics must be a list"),
        ({"topics": [1]}, "1 is not a valid name of a topic"),
        ({"topics": ["orders", ""]}, "'' is not a valid name of a topic"),
        ({"topics": ["orders", "\ud800"]}, r"'\\ud800' is not a valid name of a topic"),
        ({"topics": ["new orders"]}, "'new orders' is not a valid name of a topic"),
        ({"topics": None, "pattern": "("}, "pattern must be a regular expression"),
        ({"group_id": ""}, "group_id must be a name"),
        ({"start": "begin"}, "start must be 'earliest', 'latest', 'group'"),
        ({"start": {}}, "start must be"),
        ({"start": {"t": -1}}, "-1 is no offset"),
        ({"start": {"other": 1}}, "start names the topic 'other'"),
        ({"start": {1: 1}}, "1 is neither a topic"),
        ({"start": "group"}, "needs group_id"),
        ({"end": "earliest"}, "end must be 'latest'"),
        ({"value_format": "avro"}, "value_format must be one of bytes, str, json"),
        ({"value_type": 5}, "value_type must be a dataclass"),
        ({"value_type": dict, "value_format": "str"}, 'value_type needs value_format="json", Avro'),
        ({"key_format": None}, "key_format must be one of bytes, str, json"),
        ({"discovery_interval": 0}, "discovery_interval must be at least"),
        ({"rate_limit": -1}, "rate_limit must be a number"),
        ({"on_data_loss": "latest"}, "on_data_loss must be"),
        ({"on_bad_record": "dead orders"}, '"fail", "skip", or a topic for dead letters.*\'dead orders\' is no name'),
        ({"on_bad_record": None}, '"fail", "skip", or a topic for dead letters'),
        ({"on_bad_record": "t"}, "'t', is one that this source reads"),
        ({"topics": None, "pattern": "t.*", "on_bad_record": "t-bad"}, "'t-bad', is one that this source reads"),
        ({"on_bad_record": DeadLetter("bad", config={"acks": 1})}, "DeadLetter's config may not set 'acks'"),
        ({"fetch_budget": 1024}, "fetch_budget must be at least 4194304 bytes"),
        ({"max_span_records": 0}, "max_span_records must be a whole number"),
        ({"max_span_bytes": 1.5}, "max_span_bytes must be a whole number"),
        ({"active_backpressure": 1}, "active_backpressure must be True or False"),
        ({"span_window": 0}, "span_window must be True or False"),
        ({"config": []}, "config must be a dict"),
        ({"config": {"client.id": object()}}, "must be a string, number or bool"),
        ({"config": {"sasl.password": b"hunter2"}}, "must be a string, number or bool, not bytes$"),  # not the value
        ({"config": [("sasl.password", "hunter2")]}, "must be a dict of librdkafka's settings, not a list$"),
    ],
)
def test_wrong_options_are_refused_with_what_they_may_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KafkaSource(**{"servers": "localhost:9092", "topics": ["t"], **options})


@pytest.mark.parametrize("name", sorted(OWNED))
def test_settings_that_the_source_must_own_are_refused_by_name_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"config may not set '{name}': .{{10,}}"):
        KafkaSource("localhost:9092", topics=["t"], config={name: "x"})


def test_a_client_made_before_the_fork_is_refused() -> None:
    client = Consumer({"group.id": "g"})

    with pytest.raises(ValueError, match="client made before the workers are forked hangs"):
        KafkaSource("localhost:9092", topics=["t"], config={"client": client})


def test_a_topic_called_timestamp_is_named_by_partition() -> None:
    source = KafkaSource("localhost:9092", topics=["timestamp"], start={("timestamp", 0): 5})

    assert source.options.start == {("timestamp", 0): 5}


def test_other_settings_reach_the_client_and_the_owned_ones_stay() -> None:
    source = KafkaSource("b:1", topics=["t"], config={"isolation.level": "read_uncommitted", "fetch.max.bytes": MIB})
    config = source.options.consumer_config("client", "group")

    assert config["isolation.level"] == "read_uncommitted"
    assert config["fetch.max.bytes"] == MIB
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "error"


def test_reads_committed_records_by_default_within_one_budget() -> None:
    options = KafkaSource("b:1", topics=["t"], fetch_budget=32 * MIB).options
    config = options.consumer_config("client", "group")
    queued = config["queued.max.messages.kbytes"] * 1024

    assert config["isolation.level"] == "read_committed"
    assert queued + config["fetch.max.bytes"] + options.batch_bytes <= 32 * MIB


def test_options_that_are_not_given_have_the_values_that_help_tells() -> None:
    source = KafkaSource("b:1", topics=["t"])
    options = source.options

    assert options == KafkaOptions("b:1", ("t",))
    assert (options.start, options.end, options.value_format, options.key_format) == ("earliest", None, "json", "bytes")
    assert (options.discovery_interval, options.look_every, options.rate_limit) == ("auto", 30.0, None)
    assert (options.on_data_loss, options.on_bad_record, options.config) == ("fail", "fail", {})
    assert (options.fetch_budget, options.prefetch_bytes, options.batch_bytes) == (16 * MIB, 8 * MIB, MIB // 4)
    assert (options.group_id, options.value_type, options.outage_timeout) == (None, None, None)
    assert (source.active_backpressure, source.span_window, source.bounded) == (True, True, False)
    assert (source.max_span_records, source.max_span_bytes) == (None, None)


def test_new_partitions_are_looked_for_unless_that_is_off_or_there_is_an_end() -> None:
    def look_every(**options: Any) -> float | None:
        return KafkaSource("b:1", topics=["t"], **options).options.look_every

    assert look_every(discovery_interval=0.1) == 0.1
    assert look_every(discovery_interval=None) is None
    assert look_every(discovery_interval=5, end="latest") is None


def test_what_the_consumer_of_a_subtask_is_told() -> None:
    options = KafkaSource("b:1", topics=["t"]).options

    assert options.consumer_config("client", "group") == {
        "client.id": "client",
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 8 * 1024,
        "queued.min.messages": 2621,
        "fetch.queue.backoff.ms": 10,
        "fetch.max.bytes": 2 * MIB,
        "message.max.bytes": 1_000_000,
        "statistics.interval.ms": 5000,
        "max.partition.fetch.bytes": MIB // 4,
        "bootstrap.servers": "b:1",
        "group.id": "group",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }
    assert KafkaSource("b:1", topics=["t"], group_id="mine").options.consumer_config("c", "g")["group.id"] == "mine"


@pytest.mark.parametrize(
    ("budget", "batch", "fetch", "of_a_partition"),
    [
        (4 * MIB, MIB // 16, MIB // 2, MIB // 16),
        (16 * MIB, MIB // 4, 2 * MIB, MIB // 4),
        (800 * MIB, MIB // 4, 50 * MIB, MIB),
    ],
)
def test_the_budget_bounds_batches_and_fetches(budget: int, batch: int, fetch: int, of_a_partition: int) -> None:
    options = KafkaSource("b:1", topics=["t"], fetch_budget=budget).options
    config = options.consumer_config("client", "group")

    assert options.batch_bytes == batch
    assert (config["fetch.max.bytes"], config["max.partition.fetch.bytes"]) == (fetch, of_a_partition)


def test_what_the_producer_of_dead_letters_is_told() -> None:
    letters = DeadLetter("bad", config={"linger.ms": 50, "sasl.username": "b"})
    config = {
        "fetch.max.bytes": 10_000,
        "ssl.ca.location": "ca",
        "sasl.username": "a",
        "isolation.level": "read_committed",
    }
    options = KafkaSource("b:1", topics=["t"], on_bad_record=letters, config=config).options

    assert options.dead_letter_config("client") == {
        "client.id": "client",
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "linger.ms": 50,
        "batch.size": 65_536,
        "message.timeout.ms": 0,
        "ssl.ca.location": "ca",
        "sasl.username": "b",
        "bootstrap.servers": "b:1",
        "acks": "all",
        "message.max.bytes": 1_000_000_000,
    }
    assert options.admin_config() == {
        "bootstrap.servers": "b:1",
        "log_level": 0,
        "ssl.ca.location": "ca",
        "sasl.username": "a",
    }


@pytest.mark.parametrize(("timeout", "patience"), [(0.5, 1000), (1.0, 1000), (90, 90_000)])
def test_a_dead_letter_waits_as_long_as_an_outage_may_last(timeout: float, patience: int) -> None:
    options = KafkaSource("b:1", topics=["t"], on_bad_record="bad", outage_timeout=timeout).options

    assert options.dead_letter_config("client")["message.timeout.ms"] == patience


def test_a_patience_of_the_users_own_is_the_only_one() -> None:
    letters = DeadLetter("bad", config={"delivery.timeout.ms": 5})
    config = KafkaSource("b:1", topics=["t"], on_bad_record=letters).options.dead_letter_config("client")

    assert config["delivery.timeout.ms"] == 5
    assert "message.timeout.ms" not in config


def test_a_pattern_is_of_whole_names_and_never_of_kafkas_own_topics() -> None:
    reads = KafkaSource("b:1", pattern=".*ders").options.reads

    assert [reads(topic) for topic in ("orders", "orders-2", "__orders", "_orders")] == [True, False, False, True]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fetch_budget": 4 * MIB - 1}, f"fetch_budget must be at least {4 * MIB} bytes, not {4 * MIB - 1}"),
        ({"fetch_budget": True}, "fetch_budget must be a whole number of bytes, not True"),
        ({"discovery_interval": 0.09}, "discovery_interval must be at least 0.1 s"),
        ({"outage_timeout": 0.09}, "outage_timeout must be at least 0.1 s"),
        ({"start": {("t", "0"): 1}}, r"\('t', '0'\) is neither a topic nor"),
        ({"start": {("t", 0, 1): 1}}, "is neither a topic nor"),
        ({"start": {("other", 0): 1}}, "start names the topic 'other'"),
        ({"end": {"t": True}}, "True is no offset"),
        ({"end": {"timestamp": -1}}, "-1 is no offset"),
        ({"on_bad_record": DeadLetter("bad", servers="b:2")}, "servers is for steps"),
        ({"on_bad_record": DeadLetter("bad", at_most=(0.1, 60))}, "at_most is for steps"),
        ({"config": {"oauth_cb": "x" * 3, "logger": 1}}, "config may not set 'logger'"),
        ({"config": {"some_cb": print}}, "must be a string, number or bool, not builtin_function_or_method"),
    ],
)
def test_what_is_just_beyond_what_may_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KafkaSource(**{"servers": "localhost:9092", "topics": ["t"], **options})


def test_what_may_just_be_is_taken() -> None:
    source = KafkaSource("b:1", topics=["t", "u", "t"], start={"t": 0, ("u", 3): 1}, end={"timestamp": 0})

    assert source.options.topics == ("t", "u")
    assert KafkaSource("b:1", topics=["t"], config={"oauth_cb": print}).options.config == {"oauth_cb": print}
    assert KafkaSource("b:1", topics=["t"], outage_timeout=0.1).options.outage_timeout == 0.1


def test_a_larger_budget_fetches_more_of_a_partition_at_once_and_further_ahead() -> None:
    small, large = (
        KafkaSource("b:1", topics=["t"], fetch_budget=budget).options.consumer_config("client", "group")
        for budget in (16 * MIB, 32 * MIB)
    )

    for name in ("queued.min.messages", "max.partition.fetch.bytes"):
        assert 1.9 < large[name] / small[name] <= 2.1, name


@pytest.mark.parametrize("options", [{"fetch_budget": 4 * MIB}, {"config": {"fetch.max.bytes": 10_000}}])
def test_a_small_budget_or_fetch_makes_a_client(options: dict[str, Any]) -> None:
    Consumer(KafkaSource("b:1", topics=["t"], **options).options.consumer_config("client", "group")).close()


def test_durations_may_be_timedeltas() -> None:
    source = KafkaSource("b:1", topics=["t"], discovery_interval=timedelta(minutes=1))

    assert source.options.discovery_interval == 60.0


def test_secrets_are_not_shown() -> None:
    source = KafkaSource("b:1", topics=["t"], config={"sasl.password": "hunter2"})

    assert "hunter2" not in repr(source)
    assert "hunter2" not in repr(source.options)


@given(topic=st.text(min_size=1), partitions=st.integers(1, 50), parallelism=st.integers(1, 20))
def test_the_partitions_of_a_topic_are_spread_evenly(topic: str, partitions: int, parallelism: int) -> None:
    counts = [0] * parallelism
    for number in range(partitions):
        counts[owner((topic, number), parallelism)] += 1

    assert max(counts) - min(counts) <= 1


def test_an_owner_does_not_depend_on_the_process() -> None:
    """Python's own hash of a string does, and would give a partition to two subtasks or to none."""
    assert [owner(("orders", number), 3) for number in range(4)] == [2, 0, 1, 2]


def test_state_is_plain_values() -> None:
    assert to_state([Split("t", 0, "id", 5, None)], 1, 2) == {
        "version": 1,
        "subtask": 1,
        "parallelism": 2,
        "splits": [["t", 0, "id", 5, None, False]],
        "dead_letters": [],
    }


@pytest.mark.parametrize(
    "options",
    [
        {"config": {"fetch.mim.bytes": 1}},
        {"config": {"ssl.foo": "x"}},
        {"on_bad_record": DeadLetter("letters", config={"lingr.ms": 3})},
    ],
)
def test_a_setting_that_librdkafka_does_not_know_is_named_at_the_start(options: dict[str, Any]) -> None:
    source = KafkaSource("127.0.0.1:1", topics=["orders"], **options)
    with pytest.raises(ValueError, match=r'config is not what librdkafka takes: No such configuration property: "'):
        source.validate()
