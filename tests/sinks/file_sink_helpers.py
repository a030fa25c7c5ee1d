"""What the tests of the file sink share: a pipeline with one file sink, as its runtime would see it, and a process that
crashes.

Run as a program it opens a committer and commits, as told by the JSON in its first argument.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from kafka_sink_helpers import FolderStaging, NoMetrics

from checkpoint import failpoints
from checkpoint.codec import decode, encode
from checkpoint.committables import Committable, CommittableName
from sinks import CommitterContext, FileSink, Lineage, SinkBatch, WriterContext, WriterRestore
from sinks.files.writer import FileWriter
from sinks.sink import Committer

SINK = "out"
L1 = Lineage("L1")


@dataclass
class FileJob:
    """Every field may be changed between two runs."""

    target: Path
    staging: Path
    pipeline: str = "job"
    lineage: Lineage = L1
    restored_checkpoint: int = 0
    restored_state: Any = None
    rewind: bool = False
    ignore_earlier_output: bool = False
    fork: bool = False
    check_owner: Callable[[], None] = lambda: None
    options: dict[str, Any] = field(default_factory=lambda: {"format": "jsonl"})
    uri: str = ""

    def sink(self) -> FileSink:
        return FileSink(self.uri or self.target.as_uri(), **self.options)

    def writer(self, subtask: int = 0, clock: Callable[[], float] | None = None) -> FileWriter:
        ctx = WriterContext(self.pipeline, SINK, subtask, 2, FolderStaging(self.staging), NoMetrics())
        return FileWriter(self.sink()._parts, ctx, clock) if clock else FileWriter(self.sink()._parts, ctx)

    def committer(self, writer: int = 0) -> Committer:
        return self.sink().create_committer(
            CommitterContext(
                self.pipeline,
                SINK,
                writer,
                self.lineage,
                self.restored_checkpoint,
                self.restored_state,
                self.rewind,
                self.ignore_earlier_output,
                FolderStaging(self.staging),
                NoMetrics(),
                self.check_owner,
                self.fork,
            )
        )

    def opened(self, restored: Sequence[Committable] = (), writer: int = 0) -> Committer:
        committer = self.committer(writer)
        committer.open(restored)
        return committer

    def restore(self, checkpoint: int, state: Any, **changes: Any) -> FileJob:
        """The job as it would be restored from a checkpoint."""
        wire = decode(encode(state))
        return FileJob(
            **{
                **{name: getattr(self, name) for name in self.__dataclass_fields__},
                "restored_checkpoint": checkpoint,
                "restored_state": wire,
                **changes,
            }
        )

    def writer_restore(self, pending: Sequence[Committable] = ()) -> WriterRestore:
        return WriterRestore(
            self.pipeline,
            SINK,
            0,
            self.lineage,
            self.restored_checkpoint,
            self.restored_state,
            pending,
            self.rewind,
            self.fork,
        )

    def epoch(self, checkpoint: int, values: Sequence[Any], subtask: int = 0) -> list[Committable]:
        """What a writer of its own gives for an epoch with these records."""
        writer = self.writer(subtask)
        write(writer, values)
        return cut(writer, checkpoint)


def write(writer: FileWriter, values: Sequence[Any]) -> None:
    writer.write_batch(SinkBatch(list(values), [None] * len(values), [None] * len(values)))


def cut(writer: FileWriter, checkpoint: int) -> list[Committable]:
    prepared = writer.prepare_commit(checkpoint)
    return [
        Committable(CommittableName(checkpoint, i), payload, tuple(files))
        for i, (payload, files) in enumerate(prepared)
    ]


def visible(target: Path) -> list[Path]:
    """Files as readers see them, by name."""
    return sorted(
        path
        for path in target.rglob("*")
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(target).parts)
    )


def hidden(target: Path) -> list[str]:
    """Names of what is left of files that were about to appear."""
    return sorted(path.name for path in target.rglob(".*"))


def rows(target: Path) -> list[Any]:
    found: list[Any] = []
    for path in visible(target):
        if path.suffix == ".parquet":
            found += pq.read_table(path).to_pylist()
        else:
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def commit_elsewhere(job: FileJob, committables: Sequence[Committable], points: list[Any]) -> int:
    """Open and commit in a process of its own, which may crash at an armed failpoint; its exit status."""
    told = {
        "target": str(job.target),
        "uri": job.uri,
        "staging": str(job.staging),
        "lineage": asdict(job.lineage),
        "checkpoint": job.restored_checkpoint,
        "state": job.restored_state,
        "restored": [one.to_wire() for one in committables],
        "points": points,
    }
    return subprocess.run([sys.executable, __file__, json.dumps(told)], timeout=300).returncode


KILLED = -signal.SIGKILL


def main(told: dict[str, Any]) -> None:
    failpoints.install(told["points"])
    job = FileJob(
        Path(told["target"]),
        Path(told["staging"]),
        uri=told["uri"],
        lineage=Lineage(told["lineage"]["id"], told["lineage"]["parent"]),
        restored_checkpoint=told["checkpoint"],
        restored_state=told["state"],
    )
    committables = [Committable.from_wire(wire) for wire in told["restored"]]
    committer = job.committer()
    todo = committer.open(committables)
    committer.commit(told["checkpoint"], todo)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
