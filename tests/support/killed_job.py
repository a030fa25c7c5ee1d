"""A small job around one sink, in processes that are killed at a line and replaced, like the attempts of a real one.

What a real job has in its checkpoint storage is in one file here: the newest complete checkpoint, and how far the
records had come.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from line_killer import Line, LineKiller

from pipeline.testing.contracts.sink.sink_job import Checkpoint, SinkJob
from sinks.sink import Sink

KEYS = 6
"""A multiple of every parallelism, so that a key's records meet in one subtask."""
EPOCH = 12
"""Records between two barriers."""
LONGEST = 120
"""Seconds for one attempt; one that hangs is ended."""
COUNTED = (
    "sinks",
    "checkpoint/committables.py",
    "checkpoint/commit_log.py",
    "checkpoint/storage/staging.py",
    "checkpoint/storage/handles.py",
    "checkpoint/storage/local_files.py",
)
"""The way of a record from a writer until it is committed."""


def record(id: int) -> dict[str, Any]:
    return {"id": id, "key": f"k{id % KEYS}"}


@dataclass(frozen=True)
class KilledJob:
    sink: Sink
    folder: Path
    """Folder of the checkpoints."""
    epochs: int

    @property
    def lines(self) -> Counter[Line]:
        """How often each line was run, by the attempt that came to the end."""
        counts: Counter[Line] = pickle.loads((self.folder / "lines").read_bytes())
        return counts

    def _load(self) -> tuple[Checkpoint | None, int, int]:
        path = self.folder / "newest"
        return pickle.loads(path.read_bytes()) if path.exists() else (None, 0, 0)

    def _store(self, *newest: Any) -> None:
        temporary = self.folder / "newest-incomplete"
        temporary.write_bytes(pickle.dumps(newest))
        temporary.replace(self.folder / "newest")


class Attempts:
    """Runs attempts, each in a process of its own, forked off one that has no client, no thread and nothing left to
    import; a context manager."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-c", "import killed_job; killed_job.serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return self

    def run(self, job: KilledJob, parallelism: int, victim: Line | None = None, nth: int = 1) -> bool:
        """One attempt, from the newest checkpoint on.

        Returns:
            Whether it came to the end; else it was killed at the `nth` run of the line.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        pickle.dump((job, parallelism, victim, nth), self._server.stdin)
        self._server.stdin.flush()
        code = pickle.load(self._server.stdout)
        assert code == 0 or (code == -signal.SIGKILL and victim is not None), f"the attempt ended with {code}"
        return bool(code == 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._server:  # closes its pipes, and waits for it
            if kind is not None:
                self._server.kill()


def serve() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            signal.alarm(LONGEST)
            try:
                _attempt(*request)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        pickle.dump(os.waitstatus_to_exitcode(status), answers)
        answers.flush()


def _attempt(job: KilledJob, parallelism: int, victim: Line | None, nth: int) -> None:
    job.folder.mkdir(exist_ok=True)
    restored, written, attempts = job._load()
    job._store(restored, written, attempts + 1)
    sink_job = SinkJob(job.sink, job.folder / "storage", "killed", attempts)
    if restored is not None:
        sink_job.next_id = restored.id + 1
    with LineKiller(COUNTED, victim, nth) as lines:
        attempt = sink_job.start(parallelism, restored)
        completed: list[Checkpoint] = []
        for number in range(written // EPOCH, job.epochs):
            records = [record(id) for id in range(number * EPOCH, (number + 1) * EPOCH)]
            attempt.write(records, [each["key"] for each in records])
            checkpoint = attempt.barrier()
            job._store(checkpoint, (number + 1) * EPOCH, attempts + 1)
            completed.append(checkpoint)
            if number % 3:  # two epochs wait at times, as behind a slow commit
                for each in completed:
                    attempt.complete(each)
                attempt.commit_all()
                completed.clear()
        for each in completed:
            attempt.complete(each)
        attempt.commit_all()
        attempt.close()
    (job.folder / "lines").write_bytes(pickle.dumps(lines.counts))
