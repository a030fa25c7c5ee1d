"""Names in a job's folder: what may be a file name, and what a file name says.

    chk-<n>-<attempt>/_metadata                            one folder a checkpoint, complete once `_metadata` is there
    chk-<n>-<attempt>/<step id>-<subtask>-<kind>.arrow     private files of a subtask
    shared/<attempt>-<hint>-<unique>.arrow                 files that several checkpoints may refer to
    owner-<attempt>-<uuid>[.restored]                    who owns the job (see `checkpoint.storage.ownership`)
    savepoint-<n>-<attempt>[.stopped]                      where a savepoint went (see `checkpoint.storage.savepoints`)
    probe-…                                              see `checkpoint.storage.probe`

`attempt` is the number of the attempt that wrote the file. Nothing is written twice under one name.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final

import xxhash

METADATA: Final = "_metadata"
SHARED: Final = "shared"
TEMPORARY: Final = ".tmp-"
"""Files being written are called `.tmp-<32 hexadecimal digits>-<name>`."""

PROBE: Final = "probe-"

_LONGEST: Final = 80
"""Characters of one encoded part: with three of them a name stays below the 255 bytes that file systems allow."""
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_.-]")
_CHECKPOINT: Final = re.compile(r"chk-([1-9]\d*)-([1-9]\d*)")
_TRACE: Final = re.compile(r"savepoint-([1-9]\d*)-([1-9]\d*)")
STOPPED_SUFFIX: Final = ".stopped"
_SHARED_FILE: Final = re.compile(r"(?:\.tmp-[0-9a-f]{32}-)?([1-9]\d*)-.*", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class CheckpointRef:
    """A checkpoint's folder."""

    id: int
    attempt: int
    """The attempt that took it: two drivers that run at once may both take a checkpoint `id`."""

    @property
    def path(self) -> str:
        """Relative to the job's folder."""
        return f"chk-{self.id}-{self.attempt}"

    @classmethod
    def parse(cls, name: str) -> CheckpointRef | None:
        """The checkpoint that a folder of this name belongs to, `None` if it is no checkpoint's."""
        match = _CHECKPOINT.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


def trace_path(ref: CheckpointRef) -> str:
    """The file in the job's folder that remembers a savepoint, whose own folder is anywhere."""
    return f"savepoint-{ref.id}-{ref.attempt}"


def parse_trace(name: str) -> CheckpointRef | None:
    """The savepoint that a file of this name remembers, `None` if it is something else."""
    match = _TRACE.fullmatch(name)
    return CheckpointRef(int(match[1]), int(match[2])) if match else None


def encode(part: str) -> str:
    """`part` as (a part of) a file name: different parts get different names, whatever characters they hold.

    Letters, digits, `_`, `-` and inner dots stay; other bytes become `%XX`; long names end in a hash.
    """
    encoded = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], part.encode("utf-8", "surrogatepass")).decode()
    if encoded.startswith("."):  # neither hidden nor `..`
        encoded = "%2E" + encoded[1:]
    if len(encoded) > _LONGEST:
        # `~` is always encoded above, so no other part can look like this one.
        digest = xxhash.xxh3_128(part.encode("utf-8", "surrogatepass")).hexdigest()
        encoded = f"{encoded[: _LONGEST - 33]}~{digest}"
    return encoded


def subtask_name(step_id: str, subtask: int) -> str:
    """A subtask in file names: `totals-1`. Some file systems ignore case, so step `Totals` is `Totals~<hash>-1`: the
    files of both lie in one folder."""
    encoded = encode(step_id)
    if "~" not in encoded and step_id != step_id.lower():
        encoded += f"~{xxhash.xxh3_64(step_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return f"{encoded}-{subtask}"


def private_path(ref: CheckpointRef, subtask: str, kind: str, extension: str = "arrow") -> str:
    """A file of one checkpoint and one subtask: `chk-5-2/totals-1-state.arrow`.

    Args:
        subtask: from `subtask_name`.
        kind: what is in the file; any string, unique for the subtask.
    """
    # The last dash ends the subtask's name (see `belongs_to`), so the kind must not have one.
    return f"{ref.path}/{subtask}-{encode(kind).replace('-', '%2D')}.{extension}"


def belongs_to(name: str, subtask: str) -> bool:
    """Whether a private file of this name (without its folder) is the subtask's."""
    return name.rpartition("-")[0] == subtask


def shared_path(attempt: int, hint: str, extension: str = "arrow") -> str:
    """A new name under `shared/`; `hint` is for human readers."""
    return f"{SHARED}/{attempt}-{encode(hint)}-{uuid.uuid4().hex}.{extension}"


def shared_attempt(path: str) -> int | None:
    """The attempt number in the name of a file under `shared/`, finished or not; `None` for one that isn't Weir's."""
    match = _SHARED_FILE.fullmatch(path.removeprefix(f"{SHARED}/"))
    return int(match[1]) if match else None
