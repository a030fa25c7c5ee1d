"""What is asked of a job and takes long: each in a thread of its own, to be looked at until it is over."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

OperationKind: TypeAlias = Literal["checkpoint", "savepoint", "rescale", "stop", "cancel"]
_AT_ONCE: Final = 8
_KEPT: Final = 100
"""Newest ones that have ended."""


@dataclass
class Operation:
    """Something that was asked of the job."""

    id: str
    kind: OperationKind
    status: Literal["running", "succeeded", "failed"]
    started: float
    """Seconds since 1970."""
    ended: float | None = None
    result: int | str | None = None
    """Of a checkpoint its id; of a savepoint, and of a stop with one, its URI; of a rescale what has changed, as in
    `in, totals 4 → 8`; of a cancel what became of the job."""
    error: str | None = None
    """Why it failed, and what to do. After a `TimeoutError` it may still come about."""
    error_type: str | None = None
    """Name of the exception that `JobHandle` raises for it."""


class TooMany(Exception):
    """No more may be under way."""


class LongRequests:
    """Of one job. Begun and looked at by the server's thread."""

    def __init__(self) -> None:
        self._operations: OrderedDict[str, Operation] = OrderedDict()
        self._threads: dict[str, threading.Thread] = {}
        self._untold: set[str] = set()
        """Those whose end nobody has seen."""
        self.over = False
        """The server ends: whoever waits for the end of one is answered at once."""

    def begin(self, kind: OperationKind, perform: Callable[[], int | str | None]) -> Operation:
        """
        Raises:
            TooMany: eight are under way.
        """
        if sum(one.status == "running" for one in self._operations.values()) >= _AT_ONCE:
            raise TooMany(f"{_AT_ONCE} requests are under way; wait until one of them is over")
        operation = Operation(secrets.token_hex(8), kind, "running", time.time())
        self._operations[operation.id] = operation
        self._untold.add(operation.id)
        self._forget()
        thread = threading.Thread(target=_perform, args=(operation, perform), name=f"weir-http-{kind}", daemon=True)
        self._threads[operation.id] = thread
        thread.start()
        return operation

    def look(self, id: str) -> Operation | None:
        """`None`: it is not known, or not any more."""
        operation = self._operations.get(id)
        if operation is not None and operation.status != "running":
            self._untold.discard(id)
        return operation

    def all(self) -> list[Operation]:
        """The newest first."""
        return list(reversed(self._operations.values()))

    @property
    def owes_answers(self) -> bool:
        """Whether somebody may still look for the end of one."""
        return bool(self._untold)

    def asks_here(self) -> bool:
        """Whether this thread performs one."""
        return threading.current_thread() in self._threads.values()

    def _forget(self) -> None:
        ended = [id for id, one in self._operations.items() if one.status != "running"]
        for id in ended[:-_KEPT]:
            del self._operations[id], self._threads[id]
            self._untold.discard(id)


def _perform(operation: Operation, perform: Callable[[], int | str | None]) -> None:
    try:
        operation.result = perform()
    except Exception as error:
        # Whatever went wrong is for whoever asked.
        operation.error, operation.error_type = str(error), type(error).__name__
    operation.ended = time.time()
    operation.status = "succeeded" if operation.error_type is None else "failed"
