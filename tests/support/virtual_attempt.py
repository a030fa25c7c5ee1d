"""An attempt without Spark, sockets and threads: its clock stands still, its processes say what a test has them say."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from manual_system import ManualSystem

from pipeline.runtime import protocol
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import AttemptContext, Progress
from pipeline.runtime.driver.attempt_events import (
    AttemptEvent,
    Connected,
    Lost,
    Received,
    SparkEnded,
)
from pipeline.runtime.driver.attempt_services import AttemptServices, Post
from pipeline.runtime.protocol import ToDriver, ToSubtask
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ConnectionLost

M = TypeVar("M")
METRICS: dict[str, Any] = {"waits": [], "waitingMs": 0.0}


class VirtualConnection:
    """Remembers what the driver says."""

    def __init__(self) -> None:
        self.heard_at = 0.0
        self.said: list[ToSubtask] = []
        self.broken = False

    def send(self, message: ToSubtask) -> None:
        if self.broken:
            raise ConnectionLost("broken pipe")
        self.said.append(message)

    def heard(self, kind: type[M]) -> list[M]:
        """What of one kind it was told."""
        return [one for one in self.said if isinstance(one, kind)]


class VirtualTransport:
    address = ("driver", 4711)

    def __init__(self) -> None:
        self.job: protocol.Job | None = None
        self.state = "new"

    def start(self, job: protocol.Job) -> None:
        self.job, self.state = job, "listening"

    def stop_listening(self) -> None:
        self.state = "deaf"

    def close(self) -> None:
        self.state = "closed"


class VirtualProcesses:
    """Spark's job."""

    def __init__(self) -> None:
        self.started = False
        self.cancels: list[float] = []
        """When it was cancelled."""


class VirtualInbox:
    """Whoever waits for something in vain lets the processes go on, and then time."""

    def __init__(self, system: VirtualSystem) -> None:
        self._system = system
        self._events: deque[AttemptEvent] = deque()

    def put(self, event: AttemptEvent) -> None:
        self._events.append(event)

    def get(self, timeout: float = 0.0) -> AttemptEvent:
        while not self._events and self._system.go_on():
            pass
        if not self._events:
            self._system.now += timeout
        return self.get_nowait()

    def get_nowait(self) -> AttemptEvent:
        if not self._events:
            raise queue.Empty
        return self._events.popleft()

    def empty(self) -> bool:
        return not self._events


class VirtualSystem(ManualSystem):
    def __init__(self) -> None:
        super().__init__()
        self.script: deque[Callable[[], object]] = deque()
        """What happens while an attempt waits, one after the other."""

    def queue(self) -> Any:
        return VirtualInbox(self)

    def go_on(self) -> bool:
        """Let the executors work, or the next step of the script happen; false if there is none."""
        if busy := [executor for executor in self.executors.values() if len(executor)]:
            busy[0].run(1)
        elif self.script:
            self.script.popleft()()
        else:
            return False
        return True


class VirtualServices(AttemptServices):
    def __init__(self) -> None:
        self.manual = VirtualSystem()
        super().__init__(self.manual)
        self.virtual_transport = VirtualTransport()
        self.spark = VirtualProcesses()
        self.post: Post

    def transport(self, context: AttemptContext, secret: bytes, post: Post) -> Any:
        self.post = post
        return self.virtual_transport

    def processes(self, *args: Any) -> Any:
        return self

    # -- Spark's job ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.spark.started = True

    def cancel(self) -> None:
        self.spark.cancels.append(self.manual.now)


class VirtualAttempt:
    """A production `Attempt`, and the processes it talks to; subtask i is in partition i."""

    def __init__(self, context: AttemptContext) -> None:
        self.context = context
        self.services = VirtualServices()
        self.system = self.services.manual
        self.spark = self.services.spark
        self.transport = self.services.virtual_transport
        self.progress = Progress()
        self.attempt = Attempt(context, self.progress, self.services)
        self.inbox: VirtualInbox = self.services.post.__self__  # type: ignore[attr-defined]
        self.subtasks = [VirtualConnection() for _ in range(context.plan.subtasks)]
        self.finished = False

    # -- what happens -----------------------------------------------------------------------------------------------

    def run(self, *script: Callable[[], object]) -> None:
        """The whole attempt. `script`: what happens meanwhile, in events that are posted."""
        self.system.script.extend(script)
        self.handle = self.inbox.put  # type: ignore[method-assign]
        self.attempt.run()

    def handle(self, event: AttemptEvent) -> None:
        self.attempt.handle(event)

    def say(self, subtask: int, message: ToDriver) -> None:
        self.subtasks[subtask].heard_at = self.system.now
        self.handle(Received(self.subtasks[subtask], message))

    def say_all(self, message: ToDriver) -> None:
        for subtask in range(len(self.subtasks)):
            self.say(subtask, message)

    def connect(self, subtask: int) -> None:
        self.subtasks[subtask].heard_at = self.system.now
        self.handle(Connected(self.subtasks[subtask], f"in partition {subtask}"))

    def hello(self, subtask: int, **fields: Any) -> None:
        process = {"partition": subtask, "host": "here", "pid": 100 + subtask, "address": ("here", 5000 + subtask)}
        self.say(subtask, protocol.Hello(versions=versions(), **(process | fields)))

    def deploy(self) -> None:
        for subtask in range(len(self.subtasks)):
            self.connect(subtask)
            self.hello(subtask)

    def start(self, **restored_epochs: tuple[int, ...]) -> None:
        """Up to all subtasks running."""
        self.deploy()
        self.say_all(protocol.Running(0, restored_epochs))

    def lose(self, subtask: int, reason: str = "the connection was closed") -> None:
        self.handle(Lost(self.subtasks[subtask], reason))

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass; those that are there show that they live."""
        self.system.now += seconds
        for one in self.subtasks:
            one.heard_at = self.system.now
        self.work()
        self.finished = self.attempt.tick(self.system.now) is None

    def work(self) -> None:
        """Let the threads beside it do what they are asked to, and hand on what has come to the inbox."""
        while True:
            for executor in self.system.executors.values():
                executor.run()
            if self.inbox.empty():
                return
            self.handle(self.inbox.get_nowait())

    def acknowledge(self, checkpoint_id: int, snapshot: Any) -> None:
        """Every subtask does, and the checkpoint is written."""
        self.say_all(protocol.Acknowledged(checkpoint_id, snapshot, {}))
        self.work()

    def spark_ends(self, error: Any = None) -> None:
        self.handle(SparkEnded(error))
