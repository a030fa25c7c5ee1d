"""The broker that tests, `weir kafka` and `weir demo` run on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer

from pipeline.broker import BrokerFailed, NativeBroker
from pipeline.broker.jars import KAFKA_VERSION, FetchFailed, _is_complete, jars_folder, kafka_jars
from pipeline.broker.java import JavaMissing, find_java, java_version
from pipeline.broker.ports import free_ports
from pipeline.broker.readiness import await_broker
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka_backends import BackendUnavailable, environment_name


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """One that may be killed."""
    with KafkaBroker.start(kind="native", message_max_bytes=2_000_000) as broker:
        yield broker


# -- records --------------------------------------------------------------------------------------------------


def test_bytes_are_produced_as_they_are_and_other_values_as_json(
    kafka: KafkaBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b"\x00raw", {"user": "ann", "n": 1}, "text", None])
    assert [r.value for r in kafka.consume(topic)] == [b"\x00raw", b'{"user":"ann","n":1}', b'"text"', None]


def test_the_key_may_be_a_function_of_the_value(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    kafka.produce(topic, [{"user": "ann"}, {"user": 7}], key=lambda value: value["user"])
    kafka.produce(topic, [b"x"], key=b"\xff")
    assert [r.key for r in kafka.consume(topic)] == [b"ann", b"7", b"\xff"]


def test_partition_and_timestamp_can_be_chosen(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    kafka.produce(topic, range(6), partition=lambda n: n % 3, timestamp=lambda n: 1_000 + n)
    seen = [(r.partition, r.offset, r.json(), r.timestamp) for r in kafka.consume(topic)]
    assert seen == [
        (0, 0, 0, 1000),
        (0, 1, 3, 1003),
        (1, 0, 1, 1001),
        (1, 1, 4, 1004),
        (2, 0, 2, 1002),
        (2, 1, 5, 1005),
    ]


def test_an_empty_topic_has_no_records(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    assert kafka.consume(make_topic(partitions=2)) == []


def test_a_topic_that_ends_in_transaction_markers_is_read_to_its_end(
    kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> None:
    topic = make_topic(partitions=2)
    producer = _transactional(kafka, unique_name("writer"))
    for name, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, name, partition=0)
        producer.flush()
        end(30)
    assert [r.value for r in kafka.consume(topic)] == [b"kept"]
    assert [r.value for r in kafka.consume(topic, isolation="read_uncommitted")] == [b"kept", b"dropped"]


def test_an_open_transaction_is_not_waited_for(
    kafka: KafkaBroker, make_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> None:
    topic = make_topic()
    kafka.produce(topic, [b"before"])
    producer = _transactional(kafka, unique_name("writer"))
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush()
    kafka.produce(topic, [b"behind"])
    assert [r.value for r in kafka.consume(topic)] == [b"before"]
    assert len(kafka.consume(topic, isolation="read_uncommitted")) == 3
    producer.commit_transaction(30)
    assert [r.value for r in kafka.consume(topic)] == [b"before", b"open", b"behind"]


def test_an_unknown_topic_is_an_error(kafka: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        kafka.consume(unique_name("missing"))


def test_a_topic_that_exists_is_not_created_again(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with pytest.raises(RuntimeError, match=f"{topic}.*can't be created.*exists"):
        kafka.create_topic(topic)


def test_a_topic_can_be_given_more_partitions(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    kafka.add_partitions(topic, 3)
    kafka.produce(topic, [b"last"], partition=2)
    assert [r.partition for r in kafka.consume(topic)] == [2]


def test_a_record_that_is_refused_is_an_error(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic(config={"max.message.bytes": 1000})
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        kafka.produce(topic, [os.urandom(2000)])


# -- life -----------------------------------------------------------------------------------------------------


def test_data_and_address_outlive_a_kill(own_broker: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    topic, address = unique_name("topic"), own_broker.bootstrap_servers
    own_broker.create_topic(topic)
    own_broker.produce(topic, [b"before"])
    own_broker.kill()
    with pytest.raises(TimeoutError, match="no Kafka broker answers"):
        await_broker(address, 0.5)
    own_broker.restart()
    own_broker.produce(topic, [b"after"])
    assert own_broker.bootstrap_servers == address
    assert [r.value for r in own_broker.consume(topic)] == [b"before", b"after"]


def test_a_running_broker_can_be_restarted(own_broker: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("topic")
    own_broker.create_topic(topic)
    own_broker.produce(topic, [b"before"])
    own_broker.restart()
    assert [r.value for r in own_broker.consume(topic)] == [b"before"]


def test_properties_reach_the_broker(own_broker: KafkaBroker, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("topic")
    own_broker.create_topic(topic)
    own_broker.produce(topic, [os.urandom(900_000)])
    backend = own_broker._backend
    assert isinstance(backend, NativeBroker)
    assert "message.max.bytes=2000000\n" in (backend.directory / "server.properties").read_text()


def test_stop_leaves_neither_process_nor_folder_and_may_be_called_twice() -> None:
    broker = NativeBroker.start()
    pid, folder = broker.pid, broker.directory
    assert pid is not None
    assert folder.exists()
    broker.stop()
    broker.stop()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_a_broker_does_not_outlive_a_killed_parent() -> None:
    code = (
        "from pipeline.broker import NativeBroker; import time\n"
        "broker = NativeBroker.start(); print(broker.pid, broker.directory, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as told:
        pid, folder = told.readline().split()
    jvm = psutil.Process(int(pid))
    supervisor = jvm.parent()
    assert supervisor is not None
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([jvm, supervisor], timeout=30)
    assert not alive
    assert not Path(folder).exists()


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    started: list[NativeBroker] = []
    thread = threading.Thread(target=lambda: started.append(NativeBroker.start()))
    thread.start()
    thread.join()
    with started[0] as broker:
        await_broker(broker.bootstrap_servers, 10)
        assert broker.alive


def test_a_folder_of_ones_own_keeps_its_data(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with NativeBroker.start(directory=tmp_path, port=port) as first:
        broker = KafkaBroker("native", first)
        broker.create_topic("kept")
        broker.produce("kept", [b"here"])
    with NativeBroker.start(directory=tmp_path, port=port) as second:
        assert [r.value for r in KafkaBroker("native", second).consume("kept")] == [b"here"]


def test_a_taken_port_is_named(kafka: KafkaBroker) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(BrokerFailed, match=f"port {port} .* is taken"):
        NativeBroker.start(port=port)


def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    with pytest.raises(BrokerFailed, match="Invalid value nonsense"):
        KafkaBroker.start(kind="native", num_network_threads="nonsense")


def test_properties_that_the_broker_sets_itself_are_refused() -> None:
    with pytest.raises(ValueError, match="listeners"):
        NativeBroker.start({"listeners": "PLAINTEXT://:9092"})


# -- which one ------------------------------------------------------------------------------------------------


def test_a_running_broker_comes_first_and_is_left_alone(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_KAFKA_BOOTSTRAP", kafka.bootstrap_servers)
    with KafkaBroker.start() as broker:
        assert broker.kind == "running"
        assert broker.bootstrap_servers == kafka.bootstrap_servers
        with pytest.raises(RuntimeError, match="WEIR_KAFKA_BOOTSTRAP"):
            broker.kill()
    await_broker(kafka.bootstrap_servers, 5)


def test_a_running_broker_is_not_used_where_properties_are_asked_for(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_KAFKA_BOOTSTRAP", kafka.bootstrap_servers)
    with pytest.raises(BackendUnavailable, match="can't be given properties"):
        KafkaBroker.start(kind="running", message_max_bytes=5)


def test_a_running_broker_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.testing.kafka_backends._RUNNING_TIMEOUT_S", 0.3)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    monkeypatch.setenv("WEIR_KAFKA_BOOTSTRAP", address)
    with pytest.raises(TimeoutError, match=address):
        KafkaBroker.start()


def test_without_an_engine_docker_is_unavailable_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(BackendUnavailable, match="no Docker engine answers"):
        KafkaBroker.start(kind="docker")


def test_without_a_running_broker_and_an_engine_a_native_one_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    monkeypatch.delenv("WEIR_KAFKA_BOOTSTRAP", raising=False)
    with KafkaBroker.start() as broker:
        assert broker.kind == "native"


def test_property_names_become_the_images_variables() -> None:
    assert environment_name("offsets.retention.minutes") == "KAFKA_OFFSETS_RETENTION_MINUTES"
    assert environment_name("a.b-c_d") == "KAFKA_A_B___C__D"


# -- what it needs --------------------------------------------------------------------------------------------


def test_java_versions_are_understood() -> None:
    assert java_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert java_version('java version "1.8.0_402"') == 8
    assert java_version('openjdk version "25" 2025-09-16') == 25
    assert java_version("no java at all") is None


def test_a_missing_java_is_told_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"Java 17 or newer.*openjdk-17-jre-headless"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*openjdk-17-jre-headless"):
        find_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


def test_an_old_java_is_refused_by_version(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(JavaMissing, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_an_interrupted_fetch_is_not_taken_for_a_good_one(tmp_path: Path) -> None:
    folder = jars_folder(tmp_path)
    folder.mkdir()
    (folder / "a.jar").write_bytes(b"1234")
    assert not _is_complete(folder)
    (folder / "complete").write_text("4 a.jar\n4 b.jar\n")
    assert not _is_complete(folder)
    (folder / "b.jar").write_bytes(b"123")
    assert not _is_complete(folder)
    (folder / "b.jar").write_bytes(b"1234")
    assert _is_complete(folder)
    assert kafka_jars(tmp_path) == folder


def test_of_several_at_once_one_fetches_and_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []
    everybody_came = threading.Barrier(3)

    def fetch(folder: Path, version: str) -> None:
        assert version == KAFKA_VERSION
        fetched.append(folder)
        folder.mkdir()
        (folder / "a.jar").write_bytes(b"1234")
        (folder / "complete").write_text("4 a.jar\n")

    def come() -> None:
        everybody_came.wait(60)
        kafka_jars(tmp_path)

    monkeypatch.setattr("pipeline.broker.jars._fetch", fetch)
    threads = [threading.Thread(target=come) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert fetched == [jars_folder(tmp_path)]


def test_a_failed_fetch_says_what_to_do_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers>'
        f'<ibiblio name="none" m2compatible="true" root="http://127.0.0.1:{free_ports(1)[0]}/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv("WEIR_IVY_SETTINGS", str(settings))
    with pytest.raises(FetchFailed, match=r"Is Maven Central in reach.*WEIR_IVY_SETTINGS"):
        kafka_jars(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{jars_folder(tmp_path).name}.lock"]


def test_free_ports_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    assert max(ports) < (int(setting.read_text().split()[0]) if setting.exists() else 32_768)


def test_a_record_decodes_itself(kafka: KafkaBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    kafka.produce(topic, [{"a": [1, 2]}])
    assert [r.json() for r in kafka.consume(topic)] == [json.loads('{"a": [1, 2]}')]


def _transactional(kafka: KafkaBroker, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    return producer
