"""Where a backend has its files: a folder of its own, which goes with its process.

    <root>/weir-rocksdb/<name>/         the files
    <root>/weir-rocksdb/<name>.lock     locked while the process lives

A process that is killed leaves both behind. Its lock is free then, also if another process has its id by now, so the
next backend that begins under the same root deletes them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from contextlib import suppress
from typing import Final

from checkpoint.storage.local_copies import local_root, make_root

_LOG = logging.getLogger(f"weir.{__name__}")
_PARENT: Final = "weir-rocksdb"
_LOCK: Final = ".lock"


class ScratchFolder:
    """A new, empty folder.

    Raises:
        OSError: it can't be made.
    """

    def __init__(self, root: str | None) -> None:
        """`root`: `None` = where local copies of checkpoints go."""
        if root is None:
            root = local_root(os.environ)
            make_root(root)
        parent = os.path.join(root, _PARENT)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        remove_leftovers(parent)
        self.path = os.path.join(parent, f"{os.getpid()}-{uuid.uuid4().hex}")
        self._lock = _locked(self.path + _LOCK)
        os.mkdir(self.path, mode=0o700)

    def remove(self) -> None:
        """May be called again."""
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        if os.path.exists(self.path):
            _LOG.warning("cannot delete all of %s", self.path)
        else:
            with suppress(FileNotFoundError):
                os.unlink(self.path + _LOCK)
        os.close(self._lock)
        self._lock = -1


def _locked(path: str) -> int:
    """The descriptor of a new file that is locked before anyone sees it under its name."""
    new = f"{path}-new"
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def remove_leftovers(parent: str) -> None:
    """Delete what processes that are gone have left. What can't be deleted is logged, and stays."""
    for name in os.listdir(parent):
        if not name.endswith(_LOCK):
            continue
        path = os.path.join(parent, name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as error:
            _LOG.warning("cannot look at %s: %s", path, error)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = path.removesuffix(_LOCK)
            _LOG.info("deletes %s, whose process is gone", left)
            if os.path.exists(left):
                shutil.rmtree(left)
            os.unlink(path)
        except BlockingIOError:
            pass  # its process lives
        except FileNotFoundError:
            pass  # another process deletes it, too
        except OSError as error:
            _LOG.warning("cannot delete %s: %s", path, error)
        finally:
            os.close(descriptor)
