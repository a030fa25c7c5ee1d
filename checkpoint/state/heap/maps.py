"""The dicts that hold keyed state, one a key group and state, copied on write while a snapshot reads them."""

from __future__ import annotations

from typing import Any, Protocol

from checkpoint.state import garbage
from checkpoint.state.private_copy import private_copy


class Released(Protocol):
    @property
    def released(self) -> bool: ...


class OpenSnapshots:
    """The snapshots that may still read dicts and values of the backend."""

    def __init__(self) -> None:
        self._snapshots: list[Released] = []

    def add(self, snapshot: Released) -> None:
        self.any()  # forgets the released ones, which an idle job would gather
        self._snapshots.append(snapshot)

    def any(self) -> bool:
        """Snapshots are released by other threads; nobody tells, so this looks."""
        self._snapshots = [snapshot for snapshot in self._snapshots if not snapshot.released]
        return bool(self._snapshots)


class KeyGroupMap:
    """One state's values in one key group, by encoded key.

    Invariants while a snapshot is open: a dict that was frozen is never changed again, the first write replaces it by a
    shallow copy; a value that a snapshot can see is never handed out if it is mutable, the first access replaces it
    by a copy of its own. Both happen at most once a barrier.
    """

    __slots__ = ("_frozen", "_open", "data", "private")

    def __init__(self, open_snapshots: OpenSnapshots) -> None:
        self.data: dict[bytes, Any] = {}
        """For reading; write through `put`, `remove` and `own`."""
        self.private: dict[bytes, bool] | None = None
        """Keys whose values no snapshot can see; `None` = all of them."""
        self._frozen = False
        self._open = open_snapshots

    def freeze(self) -> dict[bytes, Any] | None:
        """The dict as it is now, for a snapshot; `None` if it is empty."""
        if not self.data:
            return None
        self._frozen = True
        self.private = {}
        return self.data

    def put(self, key: bytes, value: Any) -> None:
        if self.private is not None:
            self._before_change(key)
        self.data[key] = value

    def put_all(self, rows: dict[bytes, Any]) -> None:
        if self.private is None:
            self.data.update(rows)
            return
        for key, value in rows.items():
            self.put(key, value)

    def remove(self, key: bytes) -> None:
        if key in self.data:
            if self.private is not None:
                self._before_change(key)
            del self.data[key]

    def own(self, key: bytes) -> Any:
        """The value of a key that is present, safe to be changed in place."""
        private = self.private
        if private is None or key in private:
            return self.data[key]
        self._before_change(key)
        value = self.data[key]
        if self.private is not None:
            value = self.data[key] = private_copy(value)
        return value

    def is_shared(self, key: bytes) -> bool:
        """Whether a snapshot may see the value of the key, so that `own` would copy it."""
        return self.private is not None and key not in self.private

    def compact(self) -> None:
        """Give back the memory of what was removed, unless a snapshot reads the dict."""
        if not self._frozen:
            self.data = self.data.copy()

    def _before_change(self, key: bytes) -> None:
        if not self._open.any():
            self.private = None
            self._frozen = False
            return
        if self._frozen:
            self.data = self.data.copy()
            self._frozen = False
            if len(self.data) >= garbage.LARGE_MAP:
                garbage.exempt()
        assert self.private is not None
        self.private[key] = True
