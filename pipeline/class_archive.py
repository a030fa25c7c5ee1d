"""Archives of the classes that Weir's JVMs load, so that they start in about half the time.

A JVM without one reads and verifies thousands of classes at each start. The first JVM of a kind writes its archive when
it ends, which takes it some seconds more, once. The JVM checks at each start that an archive fits its class path, and
goes on without it otherwise. Source: "Class Data Sharing" in the Java 17 HotSpot guide, `-XX:ArchiveClassesAtExit`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from pipeline.cache import cache_dir
from pipeline.errors import PipelineError

VARIABLE: Final = "WEIR_CLASS_ARCHIVES"
"""`make`, the default: use them, and make those that are missing. `use`: make none. `off`: don't use them either."""
EXIT_SECONDS: Final = 60.0
"""How long a JVM that makes an archive may take to end; some seconds, as a rule."""
_UNUSED_SECONDS: Final = 30 * 86400
_SILENT: Final = "-Xlog:cds=off,cds+dynamic=off"
"""Why a class can't be archived, or that an archive doesn't fit, matters to nobody."""
_IN_PLACE: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""At the address that it was written for. Elsewhere, which is the default of many builds of Java 17, the JVM changes
each pointer in it: memory of its own, 34 MB with Spark, and a twentieth of a second."""

log = logging.getLogger(f"weir.{__name__}")


@dataclass(frozen=True)
class ClassArchive:
    """What a JVM that is about to start has to do with an archive."""

    options: tuple[str, ...] = ()
    """Of its command line."""
    part: Path | None = None
    """What it writes at its end; `None` if it makes no archive."""
    path: Path | None = None
    """Where that belongs."""

    @property
    def is_made(self) -> bool:
        """Whether this JVM makes the archive, so that it needs up to `EXIT_SECONDS` for its end."""
        return self.part is not None

    def keep(self) -> None:
        """The JVM has ended by itself: later ones may use what it wrote."""
        if self.part is None or self.path is None:
            return
        if self.part.exists() and (size := self.part.stat().st_size):
            with self.part.open("rb") as written:
                os.fsync(written)  # a JVM crashes on a file that a power failure has cut short
            self.part.replace(self.path)
            log.info("archived %d MB of Java classes in %s, once: later starts are faster", size >> 20, self.path)
        else:
            self.discard()

    def discard(self) -> None:
        """The JVM was killed: what it wrote may be half of it."""
        if self.part is not None:
            self.part.unlink(missing_ok=True)


def class_archive(kind: str, java: str, jars: Path, may_make: bool = True) -> ClassArchive:
    """The archive for a JVM of this kind.

    Args:
        kind: of program (`spark`, `kafka`), a part of the file's name.
        java: the path of the JVM.
        jars: the folder that its class path consists of.
        may_make: whether this JVM lasts and loads what others of its kind do. Whoever starts it then calls `keep` or
            `discard` when it has ended.

    Raises:
        PipelineError: `WEIR_CLASS_ARCHIVES` is none of its values.
    """
    wish = os.environ.get(VARIABLE) or "make"
    if wish not in ("make", "use", "off"):
        raise PipelineError(f"{VARIABLE} is {wish!r}, but must be make, use or off")
    if wish == "off":
        return ClassArchive()
    folder = cache_dir() / "classes"
    path = folder / f"{kind}-{_identity(java, jars)}.jsa"
    try:
        if path.exists():
            os.utime(path)
            return ClassArchive((*_IN_PLACE, f"-XX:SharedArchiveFile={path}", "-Xshare:auto", _SILENT))
        if wish == "use" or not may_make:
            return ClassArchive()
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        if any(folder.glob(f"{path.stem}.*.part")):
            return ClassArchive()  # another JVM is about to make it
        part = path.with_suffix(f".{os.getpid()}.part")
        part.touch()
    except OSError as error:
        log.info("Java classes are not archived, so that each start takes a second longer: %s", error)
        return ClassArchive()
    return ClassArchive((f"-XX:ArchiveClassesAtExit={part}", _SILENT), part, path)


def _identity(java: str, jars: Path) -> str:
    """Changes with whatever the JVM checks before it uses an archive."""
    digest = hashlib.sha256()
    binary = Path(java).resolve()
    for each in (binary, *sorted(jars.glob("*.jar"))):
        known = each.stat()
        digest.update(f"{each} {known.st_size} {known.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


def _remove_leftovers(folder: Path) -> None:
    """Halves that killed JVMs have left, and archives that nothing has used for a month."""
    for part in folder.glob("*.part"):
        pid = part.suffixes[-2].removeprefix(".")
        if not psutil.pid_exists(int(pid)):
            part.unlink(missing_ok=True)
    for archive in _unused(folder):
        archive.unlink(missing_ok=True)


def _unused(folder: Path) -> Iterator[Path]:
    oldest = time.time() - _UNUSED_SECONDS
    return (path for path in folder.glob("*.jsa") if path.stat().st_mtime < oldest)
