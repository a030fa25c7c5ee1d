"""A cluster of three brokers, and what tests do to one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deadlines import eventually

from pipeline.broker.cluster import NativeCluster
from pipeline.testing import KafkaCluster
from pipeline.testing.kafka_cluster import _java_hash

CLUSTER = pytest.mark.sample(1 / 4, together="cluster")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """All tests here may kill its brokers, and leave it whole."""
    with KafkaCluster.start() as cluster:
        yield cluster


def others(cluster: KafkaCluster, node: int) -> list[int]:
    return [each for each in cluster.nodes if each != node]


@CLUSTER
def test_a_topic_has_a_replica_on_every_broker(cluster: KafkaCluster, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("topic")
    cluster.create_topic(topic, partitions=3)
    for partition in range(3):
        eventually(lambda: cluster.in_sync(topic, partition) == [1, 2, 3])  # noqa: B023


@CLUSTER
def test_another_broker_leads_and_holds_the_records_when_one_is_killed(
    cluster: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("topic")
    cluster.create_topic(topic)
    cluster.produce(topic, [b"before"])
    killed = cluster.await_leader(topic)
    cluster.kill(killed)
    assert cluster.await_leader(topic, other_than=killed) in others(cluster, killed)
    cluster.produce(topic, [b"while it is down"])
    cluster.restart(killed)
    eventually(lambda: cluster.in_sync(topic) == [1, 2, 3])
    assert [record.value for record in cluster.consume(topic)] == [b"before", b"while it is down"]


@CLUSTER
def test_a_leader_is_moved_to_where_it_should_be(cluster: KafkaCluster, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("topic")
    cluster.create_topic(topic, partitions=2)
    for to in others(cluster, cluster.await_leader(topic, 1)):
        cluster.move_leader(topic, 1, to)
        assert cluster.leader(topic, 1) == to
    with pytest.raises(RuntimeError, match="node 9 has no replica"):
        cluster.move_leader(topic, 1, 9)


@CLUSTER
def test_the_coordinator_of_an_id_is_known_and_can_be_moved(
    cluster: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("id")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    first = cluster.coordinator(transactional_id=name)
    assert first is not None
    to = others(cluster, first)[0]
    cluster.move_leader(*cluster.coordinator_partition(transactional_id=name), to)
    assert cluster.coordinator(transactional_id=name) == to
    producer.begin_transaction()
    producer.abort_transaction(30)


@CLUSTER
def test_the_coordinator_of_a_group_is_what_kafka_says(
    cluster: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, names = unique_name("topic"), [unique_name("group") for _ in range(4)]
    cluster.create_topic(topic)
    for name in names:
        commit_offset(cluster, name, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    told = {name: future.result(60).coordinator.id for name, future in admin.describe_consumer_groups(names).items()}
    assert {name: cluster.coordinator(group=name) for name in names} == told


def commit_offset(cluster: KafkaCluster, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


@pytest.mark.matrix
def test_a_paused_broker_is_taken_for_dead_and_comes_back(
    cluster: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("topic")
    cluster.create_topic(topic)
    paused = cluster.await_leader(topic)
    cluster.pause(paused)
    try:
        assert cluster.await_leader(topic, other_than=paused) in others(cluster, paused)
    finally:
        cluster.resume(paused)
    eventually(lambda: cluster.in_sync(topic) == [1, 2, 3])


@pytest.mark.matrix
def test_all_brokers_come_back_with_their_data_and_addresses(
    cluster: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic, addresses = unique_name("topic"), cluster.bootstrap_servers
    cluster.create_topic(topic)
    cluster.produce(topic, [b"before"])
    cluster.kill()
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": addresses, "log_level": 0}).list_topics(timeout=1)
    cluster.restart()
    assert cluster.bootstrap_servers == addresses
    assert [record.value for record in cluster.consume(topic)] == [b"before"]


@CLUSTER
def test_exactly_one_name_has_a_coordinator(cluster: KafkaCluster) -> None:
    with pytest.raises(ValueError, match="either transactional_id or group"):
        cluster.coordinator(transactional_id="a", group="a")


def test_names_are_hashed_as_java_does() -> None:
    assert _java_hash("") == 0
    assert _java_hash("hello") == 99162322
    assert _java_hash("Weir-job-out-0") == abs(_signed("Weir-job-out-0"))
    assert _java_hash("polygenelubricants") == 0  # whose hash code, the lowest of all, has no absolute value


def _signed(text: str) -> int:
    """The sum as Java's documentation has it, for text within ASCII."""
    total = sum(ord(c) * 31 ** (len(text) - 1 - i) for i, c in enumerate(text))
    return (total + (1 << 31)) % (1 << 32) - (1 << 31)


def test_a_cluster_needs_a_node() -> None:
    with pytest.raises(ValueError, match="one node at least"):
        NativeCluster.start(0)


@pytest.mark.matrix
def test_no_broker_outlives_a_killed_parent() -> None:
    code = (
        "from pipeline.broker.cluster import NativeCluster; import time\n"
        "cluster = NativeCluster.start(3)\n"
        "print(*(node.pid for node in cluster.nodes.values()), flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as told:
        nodes = [psutil.Process(int(pid)) for pid in told.readline().split()]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(nodes, timeout=30)
    assert len(nodes) == 3
    assert not alive
