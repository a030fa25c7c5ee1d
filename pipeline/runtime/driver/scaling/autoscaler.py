"""Rescales a job by itself: looks at it once a second, and has done what `autoscaling.py` decides."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pipeline.autoscale import Autoscale
from pipeline.runtime import error_text
from pipeline.runtime.driver.scaling.advice import load_of
from pipeline.runtime.driver.scaling.autoscaling import Autoscaling, Decision, Reason, RefusedAdvice, Sample
from pipeline.runtime.driver.status.checkpoint_stats import ATTEMPT_ENDED
from pipeline.runtime.system import System

if TYPE_CHECKING:
    from pipeline.runtime.driver.job_master import JobMaster

_LOG = logging.getLogger(f"weir.{__name__}")
_LOOK: Final = 1.0
"""Seconds between two looks."""
_WAITS: Final = 1000.0
"""Milliseconds that a subtask waits for others, from which on its load says nothing."""
_KEPT: Final = 20
"""Decisions and refusals that are remembered."""


@dataclass(frozen=True)
class Autoscaled:
    """What was decided, or refused."""

    at: float
    """In seconds since 1970."""
    what: str
    """`totals 4 → 6`."""
    why: str
    outcome: Literal["rescaled", "failed", "refused"]


class Autoscaler:
    """Of one job, from its start to its end, in a thread of its own."""

    def __init__(self, options: Autoscale, master: JobMaster, system: System):
        self._o, self._master, self._system = options, master, system
        self._core = Autoscaling(options)
        self._answers = system.queue()
        """Outcomes of rescales, for this thread."""
        self._decided: tuple[float, Decision] | None = None
        """The decision without an outcome, and when it was made, in seconds since 1970."""
        self._newest: list[Autoscaled] = []
        self._rescales = Counter({"rescaled": 0, "failed": 0})
        self._refusals = Counter({reason.value: 0 for reason in Reason})
        self._trouble = ""
        """Why the job could not be looked at."""
        self.status = self._status()
        """For `weir status` and metrics: replaced whole."""
        self._thread = system.thread(self._run, f"weir-autoscale-{master.name}")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._master.ended.wait(min(_LOOK, self._o.window_s / 12)):
            try:
                self.look()
                self._trouble = ""
            except Exception as error:  # of Spark's JVM, say: the job goes on without being rescaled
                trouble = error_text.summary(error)
                self._core.away(f"can't look at the job: {trouble}")
                if trouble != self._trouble:
                    self._trouble = trouble
                    _LOG.warning("job %s: autoscale can't look at the job", self._master.name, exc_info=True)
            self.status = self._status()

    def look(self) -> None:
        """Look at the job now, and rescale it if need be; returns at once."""
        now = self._system.monotonic()
        while not self._answers.empty():
            self._on_answer(self._answers.get(), now)
        if (away := self._away()) is not None:
            self._core.away(away)
            return
        for one in self._core.sample(now, self._seen()):
            if isinstance(one, Decision):
                self._rescale(one)
            else:
                self._refuse(one)

    def _away(self) -> str | None:
        """Why the job's load says nothing now."""
        master = self._master
        if master.stopping:
            return "waits: the job is to end"
        if master.status != "running" or master.progress.running_at is None:
            return "waits until the job runs"
        if master.rescaling is not None:
            return "waits: the job is rescaled"
        if any((values.get("waitingMs") or 0.0) >= _WAITS for values in dict(master.progress.metrics).values()):
            return "waits: the job waits for something outside"
        return None

    def _seen(self) -> Sample:
        master = self._master
        progress = master.progress
        return Sample(
            job=master.options,
            running_since=progress.running_at or 0.0,
            load=load_of(dict(progress.metrics)),
            slots=master.room,
            failed_checkpoint=self._failed_checkpoint(),
        )

    def _failed_checkpoint(self) -> int | None:
        """The newest one, if it failed by itself and others follow that may show whether the trouble is over."""
        if self._master.options.checkpoints is None:
            return None
        for row in reversed(self._master.history.rows()):
            if row.status == "completed":
                return None
            if row.status == "failed" and row.failure != ATTEMPT_ENDED:
                return row.id
        return None

    def _rescale(self, decision: Decision) -> None:
        self._decided = (self._system.time(), decision)
        _LOG.info("job %s: autoscale rescales %s: %s", self._master.name, decision.what, decision.why)
        try:
            self._master.rescale_by_itself(decision.widths, self._answers.put)
        except Exception as error:  # sources and sinks check themselves, by users' code
            self._answers.put(error)

    def _on_answer(self, failure: Exception | None, now: float) -> None:
        assert self._decided is not None
        (at, decision), self._decided = self._decided, None
        if failure is None:
            self._core.rescaled(now)
            self._rescales["rescaled"] += 1
            self._note(Autoscaled(at, decision.what, decision.why, "rescaled"))
        else:
            self._core.failed(now)
            self._rescales["failed"] += 1
            self._note(Autoscaled(at, decision.what, error_text.first_line(str(failure)), "failed"))
            _LOG.warning("job %s: autoscale could not rescale %s: %s", self._master.name, decision.what, failure)

    def _refuse(self, refusal: RefusedAdvice) -> None:
        self._refusals[refusal.reason.value] += 1
        self._note(Autoscaled(self._system.time(), refusal.what, refusal.why, "refused"))
        _LOG.info("job %s: autoscale: %s", self._master.name, refusal.text)

    def _note(self, one: Autoscaled) -> None:
        self._newest = [*self._newest[1 - _KEPT :], one]

    def _status(self) -> Mapping[str, Any]:
        return {
            "least": self._o.least,
            "most": self._o.most,
            "pause": self._o.pause_s,
            "window": self._o.window_s,
            "state": self._core.state,
            "refused": [{"what": one.what, "reason": one.reason.value, "why": one.why} for one in self._core.refused],
            "newest": [
                {"at": one.at, "what": one.what, "why": one.why, "outcome": one.outcome} for one in self._newest
            ],
            "rescales": dict(self._rescales),
            "refusals": dict(self._refusals),
        }
