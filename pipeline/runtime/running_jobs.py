"""The jobs of this user that run on this host: a small file for each in the user's state folder.

The file holds the job's secret, so only its user can read it. It goes when the job ends; one that a killed driver has
left is deleted by whoever looks next.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from checkpoint.process_identity import identity, runs_still

_LOG = logging.getLogger(f"weir.{__name__}")

FOLDER_VARIABLE: Final = "WEIR_STATE_DIR"
_SUFFIX: Final = ".json"
_BEING_WRITTEN: Final = ".tmp-"
_WRITTEN_WITHIN: Final = 60.0
"""Seconds; a file that is being written for longer will not be finished."""


@dataclass(frozen=True)
class RunningJob:
    """Where a job can be asked, and with which secret."""

    name: str
    """The name of the pipeline."""
    address: str
    """`127.0.0.1:41233`."""
    secret: str
    pid: int
    """Process id of its driver."""
    host: str
    started: float
    """Seconds since 1970."""
    http: str = ""
    """URL of its web server; empty: it has none."""
    http_token: str = ""
    """What a request to that has to bring."""
    encrypted: bool = False
    """Whether it is asked over encrypted connections, of which its secret is the key."""
    process: str = ""
    """`identity` of the driver's process."""
    file: Path = Path()
    """Where this was read from."""

    def __repr__(self) -> str:
        return f"RunningJob({self.name!r} at {self.address})"  # not the secret


def state_folder() -> Path:
    """`$WEIR_STATE_DIR`, else `$XDG_STATE_HOME/weir/jobs`, else `~/.local/state/weir/jobs`.

    Raises:
        RuntimeError: the user has no home folder.
    """
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "weir" / "jobs"


def announce(
    name: str, address: str, secret: str, *, http: str = "", http_token: str = "", encrypted: bool = False
) -> Path | None:
    """Leave a file that tells of this process's job, for `withdraw` to delete; `None`, with a warning, if the folder
    can't be written."""
    here = (os.getpid(), socket.gethostname(), time.time())
    job = RunningJob(name, address, secret, *here, http, http_token, encrypted, identity(os.getpid()))
    try:
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{job.pid}-{address.rpartition(':')[2]}{_SUFFIX}"
        # Readable for its user only, from the beginning.
        descriptor, temporary = tempfile.mkstemp(prefix=_BEING_WRITTEN, dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({key: value for key, value in asdict(job).items() if key != "file"}, file)
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        _LOG.warning(
            "job %s can't be found by `weir status` and others, since its file can't be written: %s. Make the folder "
            "writable, or name another one with %s",
            name,
            error,
            FOLDER_VARIABLE,
        )
        return None
    return path


def withdraw(path: Path) -> None:
    """Delete what `announce` left."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _LOG.warning("the file of a job that has ended can't be deleted: %s", error)


def running_jobs() -> list[RunningJob]:
    """Those of this user on this host, the newest last; deletes the files of those whose process is gone.

    Raises:
        OSError: the folder can't be read.
        RuntimeError: the user has no home folder.
    """
    folder = state_folder()
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    found = []
    for path in entries:
        if path.name.startswith(_BEING_WRITTEN):
            _delete_if_old(path)
        elif path.suffix == _SUFFIX:
            job = _read(path)
            # A container with the same folder has process ids of its own.
            if job is None or job.host != socket.gethostname():
                continue
            if runs_still(job.pid, job.started, job.process):
                found.append(job)
            else:
                withdraw(path)
    return sorted(found, key=lambda job: job.started)


def _read(path: Path) -> RunningJob | None:
    """`None` if it isn't a job's file of this user's, or is gone."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        return replace(RunningJob(**json.loads(path.read_text(encoding="utf-8"))), file=path)
    except (OSError, ValueError, TypeError):
        return None


def _delete_if_old(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime > _WRITTEN_WITHIN:
            path.unlink()
    except OSError:
        pass  # finished or deleted meanwhile
