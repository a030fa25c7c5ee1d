"""See that driver and workers have the same checkpoint folder before the job starts.

The driver starts a probe; every worker answers it; the driver then looks for all answers. A `file://` folder that a
host does not share is found on one of the two ways.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from checkpoint.storage.errors import StorageError
from checkpoint.storage.naming import PROBE, encode
from checkpoint.storage.storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class Probe:
    token: str
    """Part of the file names."""
    nonce: str
    """Content of the files."""

    @property
    def path(self) -> str:
        return f"{PROBE}{self.token}"

    def answer_path(self, worker: str) -> str:
        return f"{PROBE}{self.token}-{encode(worker)}"

    def to_wire(self) -> list[Any]:
        return [self.token, self.nonce]

    @classmethod
    def from_wire(cls, wire: list[Any]) -> Probe:
        return cls(*wire)


def write_probe(storage: CheckpointStorage) -> Probe:
    """On the driver, after `CheckpointStorage.prepare`."""
    probe = Probe(uuid.uuid4().hex, uuid.uuid4().hex)
    storage.put(probe.path, probe.nonce.encode())
    return probe


def answer_probe(storage: CheckpointStorage, probe: Probe, worker: str) -> None:
    """On a worker. `worker` names it, uniquely among the probe's workers.

    Raises:
        StorageError: it does not see the driver's folder, or can't write to it.
    """
    try:
        seen = storage.get(probe.path) == probe.nonce.encode()
        if seen:
            storage.put(probe.answer_path(worker), probe.nonce.encode())
    except StorageError as error:
        raise StorageError(f"worker {worker} on host {socket.gethostname()}: {error}") from error
    if not seen:
        raise StorageError(_unseen(storage, f"worker {worker} on host {socket.gethostname()} does not see"))


def finish_probe(storage: CheckpointStorage, probe: Probe, workers: Iterable[str]) -> None:
    """On the driver, once all have answered; deletes the probe's files.

    Raises:
        StorageError: an answer isn't there.
    """
    workers = list(workers)
    try:
        for worker in workers:
            if storage.get(probe.answer_path(worker)) != probe.nonce.encode():
                raise StorageError(
                    _unseen(storage, f"what worker {worker} wrote is not seen by host {socket.gethostname()} in")
                )
    finally:
        storage.remove([probe.path, *(probe.answer_path(worker) for worker in workers)])


def _unseen(storage: CheckpointStorage, what: str) -> str:
    return f"{what} {storage.location}: use a folder that all hosts share, or an object store such as s3://bucket/weir"
