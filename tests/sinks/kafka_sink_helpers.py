"""What the tests of the Kafka sink share: contexts, a staging folder, an epoch written, and a process that crashes.

Run as a program it opens a committer and commits, as told by the JSON in its first argument.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from checkpoint import failpoints
from checkpoint.committables import Committable, CommittableName
from checkpoint.storage.handles import FileHandle
from sinks import CommitterContext, KafkaSink, Lineage, SinkBatch, WriterContext
from sinks.kafka.committer import KafkaCommitter
from sinks.sink import Committer

SINK = "out"
L1 = Lineage("L1")


class NoMetrics:
    def count(self, name: str, n: float = 1) -> None: ...

    def gauge(self, name: str, value: float | str | None) -> None: ...


class FolderFile:
    def __init__(self, folder: Path, name: str) -> None:
        self._path, self._name = folder / name, name
        self._file = self._path.open("xb")

    def write(self, data: Any) -> None:
        self._file.write(data)

    def close(self) -> FileHandle:
        self._file.close()
        content = self._path.read_bytes()
        return FileHandle(self._name, len(content), xxhash.xxh3_128_hexdigest(content))

    def abort(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class FolderStaging:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, hint: str) -> FolderFile:
        return FolderFile(self._folder, f"{hint}-{len(list(self._folder.iterdir()))}.arrow")

    def read(self, handle: FileHandle) -> bytes:
        content = (self._folder / handle.path).read_bytes()
        if xxhash.xxh3_128_hexdigest(content) != handle.checksum:
            raise OSError(f"{handle.path} is damaged")
        return content


@dataclass
class Job:
    """A pipeline with one sink, as its runtime would see it; every field may be changed between two runs."""

    servers: str
    topic: str
    pipeline: str
    folder: Path
    lineage: Lineage = L1
    restored_checkpoint: int = 0
    restored_state: Any = None
    rewind: bool = False
    ignore_earlier_output: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    check_owner: Callable[[], None] = lambda: None

    @property
    def sink(self) -> KafkaSink:
        return KafkaSink(self.servers, **{"topic": self.topic, "key": "k", **self.options})

    @property
    def group(self) -> str:
        return f"{self.pipeline}-{SINK}-0"

    def writer(self) -> Any:
        staging = FolderStaging(self.folder)
        return self.sink.create_writer(WriterContext(self.pipeline, SINK, 0, 1, staging, NoMetrics()))

    def write(self, epoch: int, *slices: Sequence[Any]) -> list[Committable]:
        """The committables of an epoch of which the records come in these slices."""
        writer = self.writer()
        for values in slices:
            writer.write_batch(batch(values))
        prepared = writer.prepare_commit(epoch)
        writer.close()
        return name(epoch, prepared)

    def committer(self, writer: int = 0) -> KafkaCommitter:
        ctx = CommitterContext(
            pipeline=self.pipeline,
            sink_id=SINK,
            writer=writer,
            lineage=self.lineage,
            restored_checkpoint=self.restored_checkpoint,
            restored_state=self.restored_state,
            rewind=self.rewind,
            ignore_earlier_output=self.ignore_earlier_output,
            staging=FolderStaging(self.folder),
            metrics=NoMetrics(),
            check_owner=self.check_owner,
        )
        committer: Committer | None = self.sink.create_committer(ctx)
        assert isinstance(committer, KafkaCommitter)
        return committer

    def restore(self, checkpoint: int, state: Any, restored: Sequence[Committable]) -> list[Committable]:
        """Restart from a checkpoint, commit what is pending as the runtime would, and end; what was pending."""
        self.restored_checkpoint, self.restored_state = checkpoint, state
        committer = self.committer()
        pending = list(committer.open(restored))
        for epoch in sorted({c.name.epoch for c in pending}):
            committer.commit(epoch, [c for c in pending if c.name.epoch == epoch])
        committer.close()
        return pending

    def marker(self) -> TopicPartition:
        """The committed offset of the marker group."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.group})
        found = consumer.committed([TopicPartition(self.sink.marker_topic, 0)], timeout=10)[0]
        consumer.close()
        return found

    def delete_marker(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_consumer_groups([self.group])[self.group].result(60)

    def alter_topic(self, setting: str, value: str) -> None:
        from deadlines import eventually  # run as a script, this file doesn't find it

        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.incremental_alter_configs([resource])[resource].result(60)
        # The controller has taken it; brokers go by it a moment later.
        there = ConfigResource(ResourceType.TOPIC, self.topic)
        eventually(lambda: admin.describe_configs([there])[there].result(60)[setting].value == value)

    def delete_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_topics([self.topic])[self.topic].result(60)


def batch(values: Sequence[Any]) -> SinkBatch:
    return SinkBatch(list(values), [None] * len(values), [None] * len(values))


def name(epoch: int, prepared: Sequence[Any]) -> list[Committable]:
    """Committables with their names, as the runtime gives them, sent through what a checkpoint makes of them."""
    named = [
        Committable(CommittableName(epoch, i), payload, tuple(files)) for i, (payload, files) in enumerate(prepared)
    ]
    return [Committable.from_wire(json.loads(json.dumps(committable.to_wire()))) for committable in named]


def records(first: int, count: int) -> list[dict[str, Any]]:
    return [{"k": f"key-{i % 7}", "id": i} for i in range(first, first + count)]


def commit_in_process(
    job: Job, restored: Sequence[Committable], commits: Sequence[tuple[int, Sequence[Committable]]], crash: str | None
) -> tuple[int, list[Any] | None]:
    """In a process of its own: open with `restored`, then each of `commits`. It kills itself at failpoint `crash`.

    Returns:
        Its exit code, and the state that a checkpoint would record at the end (`None` after a crash).
    """
    told = {
        "job": [job.servers, job.topic, job.pipeline, str(job.folder)],
        "lineage": [job.lineage.id, job.lineage.parent],
        "restored_checkpoint": job.restored_checkpoint,
        "restored_state": job.restored_state,
        "options": job.options,
        "restored": [committable.to_wire() for committable in restored],
        "commits": [[n, [committable.to_wire() for committable in each]] for n, each in commits],
        "crash": crash,
    }
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(told)], capture_output=True, text=True, timeout=300, check=False
    )
    if crash is None and done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None


def _main() -> None:
    told = json.loads(sys.argv[1])
    servers, topic, pipeline, folder = told["job"]
    lineage, parent = told["lineage"]
    job = Job(servers, topic, pipeline, Path(folder), Lineage(lineage, tuple(parent) if parent else None))
    job.restored_checkpoint, job.restored_state = told["restored_checkpoint"], told["restored_state"]
    job.options = told["options"]
    if told["crash"] is not None:
        hits = job.folder.parent / "failpoint"
        hits.mkdir(exist_ok=True)
        point = failpoints.Failpoint(told["crash"], "crash", subtask=0, nth=1, times=1, directory=str(hits))
        failpoints.install([point.to_wire()])
    committer = job.committer()
    committer.open([Committable.from_wire(wire) for wire in told["restored"]])
    for checkpoint_id, wires in told["commits"]:
        committer.commit(checkpoint_id, [Committable.from_wire(wire) for wire in wires])
    print(json.dumps(committer.snapshot()))


if __name__ == "__main__":
    _main()
