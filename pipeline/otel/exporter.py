"""Sends a job's metrics, in a thread of its own from the job's start to its end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError
from pipeline.http.watched_job import FRESH, WatchedJob
from pipeline.otel.sending import Sending
from pipeline.otel.variables import HEADERS, check_protocol, endpoint, first, interval

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult
    from opentelemetry.sdk.resources import Resource

    from pipeline.otel.points import metrics_data
    from pipeline.otel.session import LONGEST, NotingSession, cause_of
except ImportError as error:
    raise PipelineError(
        f"otel=True needs libraries of which one can't be imported ({error}); pip install 'weir-streams[otel]', on the "
        "driver"
    ) from error

if TYPE_CHECKING:
    from pipeline.handle import JobHandle

_LOG = logging.getLogger(f"weir.{__name__}")
_LAST_VALUES: Final = 2.0
"""Seconds that the last values may hold the job's end."""
_SENDERS: Final = (OTLPMetricExporter.__module__, "urllib3.connectionpool")
"""Loggers. The second one logs whole addresses at level DEBUG."""


def metrics_exporter(ready_within: float | None) -> MetricsExporter | None:
    """`None`: OpenTelemetry's own variable says that nothing is to be sent.

    Raises:
        PipelineError: another one can't be honoured; says which.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        _LOG.warning("OTEL_SDK_DISABLED is true, so that no metrics are sent")
        return None
    return MetricsExporter(ready_within)


class MetricsExporter:
    """Nothing of the job waits for it, and the job goes on whatever becomes of it."""

    def __init__(self, ready_within: float | None = None) -> None:
        """
        Args:
            ready_within: as of `WatchedJob`.

        Raises:
            PipelineError: a variable of OpenTelemetry's can't be honoured; says which.
        """
        self._ready_within = ready_within
        self.sending = Sending(endpoint(), interval())
        """Replaced as a whole, so that any thread may read it."""
        check_protocol()
        self._session = NotingSession()
        with _unlogged("opentelemetry.util.re") as said:  # it would log the header that it can't read
            try:
                self._exporter = OTLPMetricExporter(session=self._session)
            except ValueError as error:
                raise PipelineError(f"a variable of OpenTelemetry's can't be used: {error}") from error
        if said:
            raise PipelineError(
                f"{first(*HEADERS)[0]} must be of the form name=value,name=value, with values that are URL-encoded"
            )
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, name: str, handle: JobHandle) -> None:
        """Send now, at each interval and at the end, in a thread that keeps no process alive."""
        job = WatchedJob(name, handle, self._ready_within)
        self._thread = threading.Thread(target=self._run, args=(job,), name=f"weir-otel-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The job has ended: send the last values, unless it is known that they don't get there; returns at once."""
        self._closing.set()
        if self.sending.failing_since is not None:
            self._give_up()

    def asks_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def await_close(self) -> None:
        """Wait until the last values are sent. Not for long."""
        if self._thread is not None and self.sending.failing_since is None:
            self._thread.join(_LAST_VALUES)
            if self._thread.is_alive():
                self._give_up()

    def _give_up(self) -> None:
        with _unlogged(*_SENDERS):
            self._exporter.shutdown()  # ends its retries

    def _run(self, job: WatchedJob) -> None:
        resource: Resource | None = None
        due, closing = time.monotonic(), False
        while not closing:
            closing = self._closing.wait(min(FRESH, max(0.0, due - time.monotonic())))
            is_due = closing or time.monotonic() >= due
            if is_due:
                due = time.monotonic() + self.sending.every
            try:
                job.look()  # also in between, to know when the job has moved
                if is_due:
                    # Once: it looks through all packages, and logs what it can't read in a variable.
                    resource = resource or _resource_of(job.name)
                    self._note(job.name, self._send(job, resource))
            except Exception as error:
                # Whatever it is, the next try follows.
                self._note(job.name, f"they can't be made: {cause_of(error)}", error)
        self._give_up()

    def _send(self, job: WatchedJob, resource: Resource) -> str | None:
        """Why they haven't got there, if so."""
        status = job.status()
        data = metrics_data(job.families(), resource, status["started"], status["attempt_started"], time.time())
        self._session.problem = None
        with _unlogged(*_SENDERS) as said:
            try:
                result = self._exporter.export(data)
            except Exception:
                # Older versions of the library raise what a request raises, which the session has noted in safe words.
                if self._session.problem is None:
                    raise
                return self._session.problem
        if self._session.problem is not None or result is MetricExportResult.SUCCESS:
            return self._session.problem
        return (said or ["the library doesn't say why"])[-1][:LONGEST]

    def _note(self, name: str, problem: str | None, error: Exception | None = None) -> None:
        before = self.sending
        if problem is not None and before.failing_since is None:
            if self._closing.is_set():
                text = "job %s: its last metrics did not get to %s: %s"
            else:
                text = "job %s: its metrics don't get to %s: %s. The job goes on, and the log says when they get there"
            _LOG.warning(text, name, before.to, problem, exc_info=error)
        elif problem is None and before.failing_since is not None:
            _LOG.info("job %s: its metrics get to %s again", name, before.to)
        self.sending = before.after(problem, time.time())


def _resource_of(name: str) -> Resource:
    """The pipeline is the service, unless OpenTelemetry's variables name another one."""
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": name}))
    return resource


@contextmanager
def _unlogged(*names: str) -> Iterator[list[str]]:
    """What this thread has these loggers say meanwhile goes there, and not into the log."""
    said: list[str] = []
    here = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        if record.thread == here:
            said.append(record.getMessage())
        return record.thread != here

    for of_others in names:
        logging.getLogger(of_others).addFilter(keep)
    try:
        yield said
    finally:
        for of_others in names:
            logging.getLogger(of_others).removeFilter(keep)
