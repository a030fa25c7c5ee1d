"""KafkaSink on a broker with permissions: what each delivery needs, and what is said when it is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from deadlines import eventually
from kafka_sink_helpers import SINK, Job, records

from checkpoint.config import CheckpointConfig
from pipeline import JobFailed, Pipeline
from pipeline.broker.security import Security
from pipeline.preview import preview
from pipeline.testing import KafkaBroker
from sinks import KafkaSink
from sinks.kafka.errors import BrokerUnavailable, CommitFailed, MissingPermission, RecordRefused, TopicRefused
from sources import SequenceSource

USER = "job"
TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    users = {"admin": "admin-password", USER: "job-password"}
    with KafkaBroker.start(kind="native", security=Security(users=users, acls=True)) as broker:
        yield broker


MakeJob = Callable[..., Job]


@pytest.fixture
def make_job(secured: KafkaBroker, unique_name: Callable[[str], str], tmp_path: Path) -> MakeJob:
    """A job that nothing is granted yet, with a topic of its own."""

    def make(**options: Any) -> Job:
        topic = unique_name("topic")
        secured.create_topic(topic)
        config = secured.client_config(USER)
        return Job(
            secured.bootstrap_servers, topic, unique_name("job"), tmp_path, options={"config": config, **options}
        )

    return make


def start(job: Job, parallelism: int = 1) -> None:
    """What a start of the job checks."""
    job.sink.validate()
    job.sink.validate_as(job.pipeline, SINK, parallelism)


def commit(job: Job) -> Any:
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 3)))
    committer.close()
    return committer.snapshot()


def written(secured: KafkaBroker, job: Job) -> int:
    return len(secured.consume(job.topic))


# -- exactly once --------------------------------------------------------------------------------------------


def test_the_documented_permissions_are_enough_to_commit_and_to_restore(
    secured: KafkaBroker, make_job: MakeJob
) -> None:
    job = make_job()
    _grant(secured, _documented(job))
    start(job)
    job.restore(2, commit(job), job.write(2, records(3, 3)))
    assert written(secured, job) == 6


@pytest.mark.parametrize(
    ("missing", "only_describe", "message"),
    [
        (ID, False, "WRITE on transactional id '{group}'"),
        (ID, True, "WRITE on transactional id '{group}'"),
        (GROUP, False, "READ on group '{group}'"),
        (GROUP, True, "READ on group '{group}'"),
        ((TOPIC, READ), False, "READ on topic '{topic}'"),
    ],
)
def test_each_missing_permission_is_told_at_the_start_within_seconds(
    secured: KafkaBroker, make_job: MakeJob, missing: Any, only_describe: bool, message: str
) -> None:
    job = make_job()
    granted = [(kind, name, what) for kind, name, what in _documented(job) if missing not in (kind, (kind, what))]
    _grant(secured, granted)
    if only_describe:
        _grant(secured, [(missing, job.group, DESCRIBE)])
    started = time.monotonic()

    with pytest.raises(
        MissingPermission, match=f"grant the sink's user {message.format(**vars(job), group=job.group)}"
    ):
        start(job)
    assert time.monotonic() - started < 50  # of the 60 s that brokers which don't answer are waited for


def test_a_topic_that_may_not_be_seen_or_written_to_is_told_at_the_start(
    secured: KafkaBroker, make_job: MakeJob
) -> None:
    job = make_job()
    _grant(secured, [acl for acl in _documented(job) if acl[0] != TOPIC])
    with pytest.raises(TopicRefused, match=f"DESCRIBE on topic '{job.topic}' is missing"):
        start(job)
    _grant(secured, [(TOPIC, job.topic, READ)])
    with pytest.raises(TopicRefused, match=f"WRITE on topic '{job.topic}' is missing"):
        start(job)


def test_every_subtask_needs_its_own_id_and_group(secured: KafkaBroker, make_job: MakeJob) -> None:
    job = make_job()
    _grant(secured, _documented(job))
    with pytest.raises(MissingPermission, match=f"WRITE on transactional id '{job.pipeline}-{SINK}-[12]'"):
        start(job, parallelism=3)
    prefix = f"{job.pipeline}-{SINK}-"
    _grant(secured, [(ID, prefix, WRITE), (GROUP, prefix, READ)], ResourcePatternType.PREFIXED)
    start(job, parallelism=3)


def test_a_topic_chosen_by_the_record_needs_read_where_the_markers_are(secured: KafkaBroker, make_job: MakeJob) -> None:
    job = make_job()
    topic = job.topic
    job.options["topic"] = lambda _: topic
    _grant(secured, [(TOPIC, topic, WRITE), (ID, job.group, WRITE), (GROUP, job.group, READ)])
    with pytest.raises(MissingPermission, match="READ on topic '__consumer_offsets'"):
        start(job)
    _grant(secured, [(TOPIC, "__consumer_offsets", READ)])
    start(job)
    commit(job)
    assert written(secured, job) == 3


def test_a_topic_chosen_by_the_record_is_checked_when_the_first_record_for_it_is_in_progress(
    secured: KafkaBroker, make_job: MakeJob
) -> None:
    job, other = make_job(), make_job().topic
    topic = job.topic
    job.options |= {"topic": lambda r: r.get("to", topic), "marker_topic": topic}
    _grant(secured, _documented(job))
    start(job)
    for granted, missing in ((None, "DESCRIBE"), (READ, "WRITE")):
        if granted is not None:
            _grant(secured, [(TOPIC, other, granted)])
        with pytest.raises(RecordRefused, match=f"'id': 1, .*: the permission {missing} on topic '{other}' is missing"):
            job.write(1, [{"k": "a", "id": 0}, {"k": "a", "id": 1, "to": other}])


def test_the_marker_topic_needs_no_more_than_read(secured: KafkaBroker, make_job: MakeJob) -> None:
    job = make_job(marker_topic=make_job().topic)
    _grant(secured, [(TOPIC, job.topic, WRITE), (ID, job.group, WRITE), (GROUP, job.group, READ)])
    _grant(secured, [(TOPIC, job.sink.marker_topic, DESCRIBE)])
    with pytest.raises(MissingPermission, match=f"READ on topic '{job.sink.marker_topic}'"):
        start(job)
    _grant(secured, [(TOPIC, job.sink.marker_topic, READ)])
    start(job)
    commit(job)
    assert written(secured, job) == 3


def test_the_check_disturbs_no_job_that_runs_and_leaves_nothing_behind(secured: KafkaBroker, make_job: MakeJob) -> None:
    job = make_job()
    _grant(secured, _documented(job))
    start(job)
    assert job_groups(secured, job) == []
    servers = {"bootstrap.servers": secured.bootstrap_servers, **secured.client_config(USER)}
    running = Producer({**servers, "transactional.id": job.group})
    running.init_transactions(30)
    running.begin_transaction()
    running.produce(job.topic, b"{}")
    running.flush(30)
    start(job)
    running.commit_transaction(30)
    assert written(secured, job) == 1


@pytest.mark.parametrize(
    ("revoked", "message"),
    [
        (ID, "could not commit checkpoint 2 .* grant the sink's user WRITE on transactional id"),
        (GROUP, "could not commit checkpoint 2 .* grant the sink's user READ on group"),
        (TOPIC, "could not commit checkpoint 2 .* grant the sink's user READ on topic .* and WRITE on the topics"),
    ],
)
def test_a_permission_that_is_taken_away_is_named_by_the_running_sink(
    secured: KafkaBroker, make_job: MakeJob, revoked: ResourceType, message: str
) -> None:
    job = make_job()
    _grant(secured, _documented(job))
    committer = job.committer()
    committer.open([])
    committer.commit(1, job.write(1, records(0, 3)))
    epoch = job.write(2, records(3, 3))
    _revoke(secured, revoked, job.topic if revoked == TOPIC else job.group)
    with pytest.raises(CommitFailed, match=message):
        committer.commit(2, epoch)
    committer.close()


def test_a_wrong_password_is_named_and_not_taken_for_brokers_that_are_down(
    secured: KafkaBroker, make_job: MakeJob
) -> None:
    job = make_job()
    config = {**secured.client_config(USER), "sasl.password": "another"}
    with pytest.raises(BrokerUnavailable, match=r"refuse this client: .*[Aa]uthentication.*password"):
        KafkaSink(job.servers, job.topic, config=config).validate()


def test_a_group_that_may_not_be_seen_is_named_by_a_committer_without_retries(
    secured: KafkaBroker, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.kafka.marker_group.MarkerGroup.read.__defaults__", (3.0,))
    job = make_job()
    _grant(secured, [acl for acl in _documented(job) if acl[0] != GROUP])
    started = time.monotonic()
    with pytest.raises(MissingPermission, match=f"READ on group '{job.group}'"):
        job.committer().open([])
    assert time.monotonic() - started < 50


def test_a_job_without_a_permission_ends_before_it_takes_anything_over(
    secured: KafkaBroker, make_job: MakeJob, tmp_path: Path
) -> None:
    job = make_job()
    _grant(secured, [acl for acl in _documented(job) if acl[0] != ID])
    p = Pipeline(job.pipeline, checkpoints=CheckpointConfig(str(tmp_path / "checkpoints")))
    p.source("in", SequenceSource(10)).sink(SINK, job.sink)
    assert any("WRITE on transactional id" in refusal for refusal in preview(p).refusals)
    handle = p.start()
    with pytest.raises(JobFailed, match=f"step 'out': .* grant .* WRITE on transactional id '{job.group}'"):
        handle.wait(300)
    assert not (tmp_path / "checkpoints").exists()


def test_what_a_topic_takes_is_known_with_describe_configs_and_else_assumed_with_a_warning(
    secured: KafkaBroker, make_job: MakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job()
    _grant(secured, _documented(job))
    start(job)
    assert "with the permission DESCRIBE_CONFIGS" in caplog.text
    caplog.clear()
    _grant(secured, [(TOPIC, job.topic, AclOperation.DESCRIBE_CONFIGS)])
    start(job)
    assert caplog.text == ""


# -- at least once, none -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at_least_once", "none"])
def test_without_transactions_write_on_the_topic_is_enough(
    secured: KafkaBroker, make_job: MakeJob, delivery: str
) -> None:
    job = make_job(delivery=delivery)
    with pytest.raises(TopicRefused, match=f"DESCRIBE on topic '{job.topic}' is missing"):
        start(job)
    _grant(secured, [(TOPIC, job.topic, DESCRIBE)])
    with pytest.raises(TopicRefused, match=f"WRITE on topic '{job.topic}' is missing"):
        start(job)
    _grant(secured, [(TOPIC, job.topic, WRITE)])
    start(job)
    job.write(1, records(0, 3))
    assert written(secured, job) == 3


# -- helpers -------------------------------------------------------------------------------------------------

Acl = tuple[ResourceType, str, AclOperation]


def _documented(job: Job) -> list[Acl]:
    """As in docs/kafka-sink.md."""
    return [(TOPIC, job.topic, WRITE), (TOPIC, job.topic, READ), (ID, job.group, WRITE), (GROUP, job.group, READ)]


def _admin(broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, **broker.client_config()})


def job_groups(broker: KafkaBroker, job: Job) -> list[str]:
    found = _admin(broker).list_consumer_groups(request_timeout=10).result().valid
    return [group.group_id for group in found if group.group_id.startswith(job.pipeline)]


def _grant(
    broker: KafkaBroker, acls: Sequence[Acl], pattern: ResourcePatternType = ResourcePatternType.LITERAL
) -> None:
    allow = AclPermissionType.ALLOW
    bindings = [AclBinding(kind, name, pattern, f"User:{USER}", "*", what, allow) for kind, name, what in acls]
    admin = _admin(broker)
    for granted in admin.create_acls(bindings).values():
        granted.result(60)
    eventually(lambda: len(admin.describe_acls(_matching(*acls[-1][:2])).result(60)) > 0)


def _revoke(broker: KafkaBroker, kind: ResourceType, name: str) -> None:
    admin = _admin(broker)
    chosen = _matching(kind, name)
    assert admin.delete_acls([chosen])[chosen].result(60)
    eventually(lambda: not admin.describe_acls(chosen).result(60))


def _matching(kind: ResourceType, name: str) -> AclBindingFilter:
    return AclBindingFilter(kind, name, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
