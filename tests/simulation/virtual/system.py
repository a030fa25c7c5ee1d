"""The system of a virtual process: clocks, threads, and what threads wait with."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from greenlet import getcurrent

from virtual.scheduler import Fiber, Killed, Process, Scheduler

EPOCH = 1_700_000_000.0
"""The wall clock's value where the virtual clock begins."""
_LEAST_WAIT = 0.05
"""Seconds that a wait for an event takes at least if nobody ends it, as on a busy machine: polling costs steps."""


class _Waiters:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Fiber] = []

    def wait(self, deadline: float | None) -> bool:
        fiber = getcurrent()
        self._waiting.append(fiber)
        try:
            return self._scheduler.park(deadline)
        finally:
            if fiber in self._waiting:
                self._waiting.remove(fiber)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            self._scheduler.wake(fiber)


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters = _Waiters(scheduler)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else self._scheduler.now + max(timeout, _LEAST_WAIT)
        while not self._set:
            if not self._waiters.wait(deadline):
                break
        return self._set


class Condition:
    """Fibers change places only where they wait, so the lock can't be missed; that nobody waits while holding it is
    seen to."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Any = None
        self._waiters = _Waiters(scheduler)

    def __enter__(self) -> Condition:
        me = getcurrent()
        assert self._owner is None or not self._owner.process.alive, "somebody waits with a lock in hand"
        self._owner = me
        return self

    def __exit__(self, *_: Any) -> None:
        self._owner = None

    def wait(self, timeout: float | None = None) -> bool:
        self._owner = None
        woken = self._waiters.wait(None if timeout is None else self._scheduler.now + timeout)
        self._owner = getcurrent()
        return woken

    def notify(self) -> None:
        self._waiters.wake()

    notify_all = notify


class Queue:
    """`queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._waiters = _Waiters(scheduler)

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._scheduler.now + timeout
        while not self._items:
            if not block or not self._waiters.wait(deadline):
                if self._items:
                    break
                raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class Thread:
    def __init__(self, system: System, target: Callable[[], Any], name: str) -> None:
        self._system = system
        self._target = target
        self._name = name
        self._fiber: Fiber | None = None
        self._ended = Event(system.scheduler)

    def start(self) -> None:
        self._fiber = self._system.scheduler.spawn(self._system.process, self._name, self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.ended

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._ended.wait(timeout)


class Executor:
    """`concurrent.futures.ThreadPoolExecutor`."""

    def __init__(self, system: System, workers: int, name: str) -> None:
        self._system = system
        self._most = workers
        self._name = name
        self._workers = 0
        self._idle = 0
        self._jobs: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()
        self._work = _Waiters(system.scheduler)
        self._ended = _Waiters(system.scheduler)
        self._shut = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._jobs.append((future, function, args, kwargs))
        if self._idle < len(self._jobs) and self._workers < self._most:
            self._workers += 1
            self._system.scheduler.spawn(self._system.process, f"{self._name}-{self._workers}", self._work_off)
        else:
            self._work.wake()
        return future

    def _work_off(self) -> None:
        try:
            while True:
                while not self._jobs:
                    if self._shut:
                        return
                    self._idle += 1
                    try:
                        self._work.wait(None)
                    finally:
                        self._idle -= 1
                future, function, args, kwargs = self._jobs.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    result = function(*args, **kwargs)
                except Killed:
                    raise
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                self._ended.wake()
        finally:
            self._workers -= 1
            self._ended.wake()

    def wait_for(self, futures: Iterable[Future[Any]], timeout: float | None) -> bool:
        deadline = None if timeout is None else self._system.scheduler.now + timeout
        left = list(futures)
        while any(not future.done() for future in left):
            if not self._ended.wait(deadline):
                return False
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        if cancel_futures:
            jobs, self._jobs = self._jobs, deque()
            for future, *_ in jobs:
                future.cancel()
        self._work.wake()
        while wait and self._workers:
            self._ended.wait(None)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown(wait=True)


class System:
    """What `pipeline.runtime.system.System` is to a real process."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self.scheduler = scheduler
        self.process = process

    def monotonic(self) -> float:
        return self.scheduler.now

    def time(self) -> float:
        return EPOCH + self.scheduler.now

    def event(self) -> Event:
        return Event(self.scheduler)

    def condition(self) -> Condition:
        return Condition(self.scheduler)

    def queue(self) -> Queue:
        return Queue(self.scheduler)

    def thread(self, target: Callable[[], Any], name: str) -> Thread:
        return Thread(self, target, name.removeprefix("weir-"))

    def executor(self, workers: int, name: str) -> Executor:
        return Executor(self, workers, name.removeprefix("weir-"))

    def wait(self, futures: Iterable[Future[Any]], timeout: float) -> list[Future[Any]]:
        """Those that are not done after `timeout` seconds."""
        left = list(futures)
        until = self.scheduler.now + timeout
        while any(not one.done() for one in left) and self.scheduler.now < until:
            self.scheduler.pause(0.05)
        return [one for one in left if not one.done()]

    def exit(self, code: int) -> None:
        self.scheduler.kill(self.process)
