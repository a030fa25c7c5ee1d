"""One state of one key in a backend, over restarts, with and without undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, KeyedBackend, ValueState, bind, read_batches
from checkpoint.state.handles import ValueHandle
from checkpoint.state.undo import UndoLog

_MAX = 4


class _Declares(DeclaresState):
    kept = ValueState[Any]()


class OneState:
    def __init__(self, make: type[KeyedBackend], undo: bool) -> None:
        self._make = make
        self._undo = undo
        self._begin()

    def _begin(self) -> None:
        self.backend = self._make(range(_MAX), _MAX)
        self.log = UndoLog()
        if self._undo:
            self.backend.undo_by(self.log)
        self._declares = _Declares()
        bind(self._declares, self.backend)

    def handle(self) -> ValueHandle[Any]:
        """Makes the key the current one."""
        encoded = encode_key("ann")
        self.backend.set_current_key(encoded, key_group(encoded, _MAX))
        return cast(ValueHandle[Any], self._declares.kept)

    def run(self, change: Callable[[Any, Any], None], steps: Iterable[Any]) -> None:
        """Each step is a record's, which has not failed."""
        for step in steps:
            self.log.begin()
            change(self, step)
            self.log.keep()

    def fail(self, change: Callable[[Any, Any], None], steps: Iterable[Any]) -> None:
        """All steps are of one record that fails at its end."""
        self.log.begin()
        for step in steps:
            if step[0] != "restart":
                change(self, step)
        self.backend.clear_current_key()
        self.log.take_back()

    def snapshot(self) -> bytes:
        pieces: list[bytes] = []
        self.backend.freeze().write(lambda piece: pieces.append(bytes(piece)))
        return b"".join(pieces)

    def restart(self) -> None:
        written = self.snapshot()
        self.backend.close()
        self._begin()
        self.backend.restore(read_batches(written, range(_MAX)))
