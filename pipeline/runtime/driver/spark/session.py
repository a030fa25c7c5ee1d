"""Spark, as a job needs it."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.waiting import WaitKind
from pipeline.plan import Plan
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.spark.gateway import lost_jvm
from pipeline.runtime.driver.spark.slots import await_slots, free_slots, not_enough_slots, require_slots
from pipeline.runtime.driver.spark.spark_job import (
    SUBMITTED,
    begin_local_context,
    check_session,
    is_on,
    spark_context,
    stop_context,
)
from pipeline.runtime.driver.status.waits import THE_JOB, Waits

_LOG = logging.getLogger(f"weir.{__name__}")


_READABLE: Final = (
    "job %s: its processes encrypt what they say to each other, but the secret that is the key of it reaches them by "
    "Spark's connections, which this session doesn't encrypt: who listens there can read all. Set spark.authenticate, "
    "spark.authenticate.secret and spark.network.crypto.enabled before the session starts (docs/security.md)"
)
_HIDING: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
_LOOK: Final = 0.2
"""Seconds."""
_OPEN: Final[weakref.WeakSet[JobSession]] = weakref.WeakSet()
"""Those of the jobs of this process that run."""


class JobSession:
    """The session that a job runs in: one that was there before, or its own. Tests without Spark have another class."""

    def __init__(self, options: JobOptions):
        self._o = options
        self.waits: Waits | None = None
        """The job's, where it is told what is waited for."""
        self.context: Any = None
        """The `SparkContext`, once it is open."""
        self._own = self._local = False
        self._lock = threading.Lock()
        """Guards what follows, and `context` while it is opened."""
        self._given_up = False

    def begin(self) -> None:
        """Start what takes long of `open`, while the job is checked; returns at once."""
        begin_local_context(self._o.spark)

    def open(self, not_needed: Callable[[], bool]) -> bool:
        """Find or start it, with a slot for each subtask; whether it is open.

        Args:
            not_needed: asked a few times a second. Once it says so, nobody waits any more, and the session is not open:
                a JVM may take long to come up.

        Raises:
            PipelineError: it can't be used.
            NotEnoughSlots: it has too few slots.
            OSError, RuntimeError: Spark doesn't start.
        """
        opened: Future[None] = Future()
        threading.Thread(target=self._open, args=(opened,), name="weir-spark-session", daemon=True).start()
        while not wait([opened], _LOOK).done:
            if not_needed():
                with self._lock:
                    self._given_up = True
                return False
        opened.result()
        return True

    def _open(self, opened: Future[None]) -> None:
        try:
            self._find()
            opened.set_result(None)
        except BaseException as error:  # whoever waits raises it
            opened.set_exception(error)

    def _find(self) -> None:
        o = self._o
        context, own = spark_context(o.spark, o.plan.subtasks, o.name)
        with self._lock:
            if self._given_up:
                if own:
                    stop_context(context)
                return
            self.context, self._own = context, own
            self._local = str(context.master).startswith("local")
            _OPEN.add(self)
        if o.encrypt and not self._local and not _hides_secrets(self.context.getConf()):
            _LOG.warning(_READABLE, o.name)
        require_slots(self.context, o.plan, self._tell)
        _LOG.info(
            "job %s: Spark %s at %s has slots for %s; their processes start",
            *(o.name, self.context.version, self.context.master, counted(o.plan.subtasks, "subtask")),
        )

    @property
    def room(self) -> int | None:
        """The most subtasks that it has slots for; `None`: it grows with the job."""
        return None if self._may_grow and not self._shared() else free_slots(self.context)

    def require_room(self, plan: Plan) -> None:
        """See that it has slots for this plan, or can get them.

        Raises:
            NotEnoughSlots: it can't; says how many there are.
        """
        if (slots := free_slots(self.context)) >= plan.subtasks:
            return
        if not self._may_grow:
            raise not_enough_slots(self.context, plan, slots)
        if self._shared():
            why = ", and does not grow while another job of this process runs in it"
            raise not_enough_slots(self.context, plan, slots, why)

    def fit(self, options: JobOptions) -> None:
        """The next attempts go by these options: a local session of the job's own that has too few slots is replaced
        by another one, in the same JVM.

        Raises:
            NotEnoughSlots: it has too few, and is not to be replaced.
            OSError, RuntimeError: Spark doesn't start.
        """
        self._o = options
        if self._may_grow and (self.context is None or free_slots(self.context) < options.plan.subtasks):
            if self.context is not None:
                self.require_room(options.plan)
                context, self.context = self.context, None
                stop_context(context)
            self.context, _ = spark_context(None, options.plan.subtasks, options.name)
            _LOG.info("job %s: Spark starts anew at %s", options.name, self.context.master)

    @property
    def _may_grow(self) -> bool:
        """Whether it is one of Weir's own making in this process, as large as the job."""
        return self._own and self._local and self._o.spark is None and SUBMITTED not in os.environ

    def _shared(self) -> bool:
        """Whether another job runs in it."""
        return sum(session.context is self.context for session in _OPEN if session.context is not None) > 1

    def check(self, stop: threading.Event | None) -> None:
        """See that an attempt can run in it.

        Args:
            stop: for a restart: wait for the slots of the attempt before, until this is set.

        Raises:
            PipelineError: it is stopped.
            NotEnoughSlots: the slots don't become free.
        """
        check_session(self.context)
        if stop is not None:
            await_slots(self.context, self._o.plan, stop, self._tell)

    def _tell(self, what: str | None) -> None:
        if self.waits is not None:
            self.waits.instead(THE_JOB, what, WaitKind.SLOTS)

    @property
    def host(self) -> str:
        """The address that executors reach the driver at."""
        if self.context.master.startswith("local"):
            return "127.0.0.1"
        host: str = self.context.getConf().get("spark.driver.host", "127.0.0.1")
        return host

    def lost(self) -> str | None:
        """That Spark's JVM is gone, if it is: what that does to all who talk to it explains nothing."""
        lost = None if self.context is None else lost_jvm(self.context)
        return None if lost is None else f"{lost}. Start the job again; it goes on from its newest checkpoint"

    def close(self) -> None:
        """Stop it, if it is the job's own."""
        with self._lock:
            self._given_up = True
        _OPEN.discard(self)
        if self._own and self.context is not None:
            stop_context(self.context)


def _hides_secrets(conf: Any) -> bool:
    """Whether connections of Spark's are encrypted with these settings."""
    return any(is_on(conf, key) for key in _HIDING)
