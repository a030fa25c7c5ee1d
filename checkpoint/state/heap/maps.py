"""The dicts that hold keyed state, one a key group and state, copied on write while a snapshot reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from checkpoint.state import garbage
from checkpoint.state.private_copy import private_copy


class SnapshotReading:
    """A snapshot reads dicts of one key group, or what has changed in them."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False
        """Only ever turns true; by any thread."""


class OpenReadings:
    """Those that may still read one dict and its values."""

    __slots__ = ("_readings",)

    def __init__(self) -> None:
        self._readings: list[SnapshotReading] = []

    def add(self, reading: SnapshotReading) -> None:
        self._readings = [one for one in self._readings if not one.over]  # an idle job would gather them
        self._readings.append(reading)

    def any(self) -> bool:
        """They end in other threads; nobody tells, so this looks."""
        readings = self._readings
        while readings and readings[-1].over:
            readings.pop()
        return bool(readings)


class KeyGroupMap:
    """One state's values in one key group, by encoded key.

    Invariants while a snapshot reads it: a dict that was frozen is never changed again, the first write replaces it
    by a shallow copy; a value that a snapshot can see is never handed out if it is mutable, the first access replaces
    it by a copy of its own. Both happen at most once a barrier.
    """

    __slots__ = ("_frozen", "_open", "data", "private")

    def __init__(self) -> None:
        self.data: dict[bytes, Any] = {}
        """For reading; write through `put`, `remove` and `own`."""
        self.private: dict[bytes, bool] | None = None
        """Keys whose values no snapshot can see; `None` = all of them."""
        self._frozen = False
        self._open = OpenReadings()

    def freeze(self, reading: SnapshotReading) -> dict[bytes, Any] | None:
        """The dict as it is now, to be read until then; `None` if it is empty."""
        if not self.data:
            return None
        self._open.add(reading)
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

    def hand_out(self, key: bytes, part: Any, place: Any) -> Any:
        """Something that is in a part of a row that is present, safe to be changed in place."""
        return self.own(key)[part][place]

    def hand_out_all(self, key: bytes, part: Any) -> Any:
        """A part of a row that is present; what is in it is safe to be changed in place."""
        return self.own(key)[part]

    def is_shared(self, key: bytes) -> bool:
        """Whether a snapshot may see the value of the key, so that `own` would copy it."""
        return self.private is not None and key not in self.private

    def all_keys(self) -> Iterator[bytes]:
        """All that have a value."""
        return iter(list(self.data))

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
