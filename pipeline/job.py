"""`Pipeline`: where a job begins."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from checkpoint.config import CheckpointConfig
from checkpoint.counted import counted
from checkpoint.options import named_options, seconds, whole_number
from pipeline import settings
from pipeline.autoscale import Autoscale
from pipeline.buffers import BufferConfig
from pipeline.dead_ends import dead_ends, unused_streams
from pipeline.errors import PipelineError
from pipeline.event_time_inputs import check_event_time
from pipeline.graph import MOST_SUBTASKS, Graph, StepKind
from pipeline.handle import JobHandle
from pipeline.http.address import Address
from pipeline.http.tls import Certificate
from pipeline.plan import Plan, plan
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.restart import RestartStrategy
from pipeline.runtime.driver.signals import signals
from pipeline.runtime.driver.start.start_checks import check_arguments
from pipeline.runtime.encryption import require_library
from pipeline.streams import Stream
from pipeline.streams.checks import expected
from sources.source import Source

if TYPE_CHECKING:
    from pipeline.http.server import HttpServer
    from pipeline.otel.exporter import MetricsExporter

T = TypeVar("T")
_LOG = logging.getLogger(f"weir.{__name__}")
_refuses_starts = False


@contextmanager
def refusing_starts() -> Iterator[None]:
    """While the `weir` command reads a script: one that starts its job by being read would run it under `weir plan`,
    and twice under `weir run`."""
    global _refuses_starts
    _refuses_starts = True
    try:
        yield
    finally:
        _refuses_starts = False


@named_options
class Pipeline:
    """A job: sources, operators and sinks, and how they run.

    Options from outside, such as `WEIR_…` variables, win over the arguments (see `pipeline.settings`).

    Args:
        name: names the job's folder under the checkpoint root and, by default, its transactional ids. Two jobs with one
            name and one root are taken for one job.
        parallelism: subtasks of each step that doesn't set its own, from 1 to 32767. All subtasks run at the same time,
            each in a process of its own, so Spark needs a slot for each. Default: 1.
        max_parallelism: number of key groups, in which keyed state moves when the job is rescaled, and so the most
            subtasks that a keyed step can ever have. The first checkpoint fixes it. Default: 128.
        checkpoints: where, how often and how checkpoints are taken (`CheckpointConfig`). `None` (the default): only one
            at the end of a bounded job, in a temporary folder, so that a failed job begins anew.
        restart: what to do when an attempt fails (`RestartStrategy`). `None` (the default): `fixed_delay()`, up to 3
            restarts, each 1 s after the failure.
        buffers: bounds of what is in flight between subtasks (`BufferConfig`). `None` (the default): those of
            `BufferConfig()`, which adapt to the rates that are measured.
        autoscale: have the running job rescaled by itself, within which bounds (`Autoscale`). `None` (the default): it
            is only rescaled when somebody asks for it.
        stop_grace: seconds, or a `timedelta`, that SIGINT or SIGTERM gives the job for a last checkpoint and its
            commit, before it is cancelled; 0 = cancelled at once. Default: 30 s.
        encrypt: encrypt what the job's processes say to each other, and to commands such as `weir stop`: TLS 1.3, with
            a key that only the job's processes have. Needs `weir-streams[encryption]` on all hosts. Default: false.
        ready_within: seconds, or a `timedelta`, without a record and without a completed checkpoint after which
            `/readyz` of the web server (the option `http` of `start`) says that the job doesn't move. `None` (the
            default): three intervals of checkpoints, and at least 60 s.
        show_keys: whether status, REST and the page may name the keys that have most of a step's records. `False` where
            keys are personal data: then they tell the shares alone. Default: `True`.
        http_certificate: file (PEM) with the certificate of the web server, which then speaks TLS (`https://`). `None`
            (the default): it speaks plain HTTP.
        http_key: file (PEM) with the certificate's private key, without a password. `None` (the default): it is in the
            file of the certificate.

    Raises:
        PipelineError: a value can't be used; the message says why.
    """

    def __init__(
        self,
        name: str,
        parallelism: int = 1,
        max_parallelism: int = 128,
        checkpoints: CheckpointConfig | None = None,
        restart: RestartStrategy | None = None,
        buffers: BufferConfig | None = None,
        autoscale: Autoscale | None = None,
        stop_grace: float | timedelta = 30.0,
        ready_within: float | timedelta | None = None,
        http_certificate: str | Path | None = None,
        http_key: str | Path | None = None,
        show_keys: bool = True,
        encrypt: bool = False,
    ):
        if not isinstance(name, str) or not name or any(c in name for c in "/\\\0") or name.startswith("."):
            raise PipelineError(f"a pipeline's name must be non-empty and work as a folder name, not {name!r}")
        if any("\ud800" <= c <= "\udfff" for c in name):
            raise PipelineError(f"a pipeline's name can't hold lone surrogates, which no encoding has: {name!r}")
        given = settings.current()
        parallelism = given.value("parallelism", parallelism)
        max_parallelism = given.value("max_parallelism", max_parallelism)
        for label, value in (("parallelism", parallelism), ("max_parallelism", max_parallelism)):
            try:
                whole_number(value, label, 1, MOST_SUBTASKS)
            except ValueError as error:
                raise PipelineError(f"{error}{given.origin(label)}") from error
        for label, thing, kind in (
            ("checkpoints", checkpoints, CheckpointConfig),
            ("restart", restart, RestartStrategy),
            ("buffers", buffers, BufferConfig),
            ("autoscale", autoscale, Autoscale),
        ):
            if thing is not None and not isinstance(thing, kind):
                raise PipelineError(f"{label} must be a {kind.__name__}, not {thing!r}")
        self.name = name
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.checkpoints = given.checkpoint_config(checkpoints)
        self.restart = given.restart_strategy(restart)
        self.buffers = given.buffer_config(buffers)
        self.autoscale = given.autoscale(autoscale)
        if self.autoscale is not None:
            _check_bounds(self.autoscale, parallelism, max_parallelism, given)
        self.stop_grace = _duration("stop_grace", stop_grace, given)
        self.ready_within = None
        if given.value("ready_within", ready_within) is not None:
            self.ready_within = _duration("ready_within", ready_within, given)
        self.show_keys = given.flag("show_keys", show_keys)
        self.http_certificate = given.value("http_certificate", http_certificate)
        self.http_key = given.value("http_key", http_key)
        self.encrypt = given.flag("encrypt", encrypt)
        self._given = given
        self._graph = Graph()
        self._newest: JobHandle | None = None
        """Kept so that tests that wait for the job find it, also where nobody else does."""

    def source(self, id: str, source: Source[T], parallelism: int | None = None) -> Stream[T]:
        """Add a source under a stable id."""
        if not isinstance(source, Source):
            raise PipelineError(f"source({id!r}): {expected('a Source', source)}")
        number = self.parallelism if parallelism is None else parallelism
        follows = () if parallelism is None else None
        return Stream(self, self._graph.add(StepKind.SOURCE, id, source, number, [], follows=follows))

    def plan(self) -> Plan:
        """The vertices and edges that will run (see `pipeline.plan`).

        Raises:
            PipelineError: it can't run, or event time would stand still where it is used.
        """
        planned = plan(self._graph, self.max_parallelism)
        check_event_time(planned)
        return planned

    def start(
        self,
        restore: str | Path = "latest",
        *,
        spark: Any = None,
        claim: bool | None = None,
        rewind: bool = False,
        allow_unclaimed: bool = False,
        ignore_in_flight: int | None = None,
        take_over: bool = False,
        http: str | None = None,
        otel: bool = False,
    ) -> JobHandle:
        """Start the job and return at once.

        Args:
            restore: `"latest"`: the newest retained checkpoint if there is one, or the savepoint that the job was
                stopped with; `"none"`: from nothing; or the URI of a savepoint's or a checkpoint's folder, of this
                pipeline or another one.
            claim: with a URI, what becomes of output that is in there and not committed. By default a pipeline of the
                same name claims it: sinks find out which of it is committed already and commit the rest. A pipeline of
                another name is a fork, which leaves it to the other one. `False`: it is **dropped**, with a warning.
            spark: a `SparkSession` or `SparkContext` to run in, or a master's URL; by default the active session, else
                that of `spark-submit`, else `local[subtasks]`.
            rewind: accept that output beyond the restored checkpoint is already visible, and will be made again. By
                default such a start is refused by sinks that find such output.
            allow_unclaimed: drop state of the checkpoint that no step or operator declares any more. By default a start
                from such a checkpoint is refused.
            ignore_in_flight: id of the checkpoint to be restored: records that were in flight in it are **lost**. For a
                checkpoint whose channel state is damaged, or has records of an edge that the pipeline doesn't have any
                more. How many are dropped on each edge is logged. By default (`None`) all are restored.
            take_over: end the driver that runs this job now, and go on from its newest checkpoint. Without it such a
                start is refused; after a crash nothing is needed.
            http: where the job's web server listens, with metrics, health and REST, as in `"127.0.0.1:8080"`; port 0:
                the system chooses one, and `handle.http` has the URL. Needs `weir-streams[http]`. The option from
                outside is `http`, as in `WEIR_HTTP`. `None` (the default): there is none.
            otel: send all metrics by OpenTelemetry's protocol, OTLP over HTTP, to where OpenTelemetry's own variables
                say, such as `OTEL_EXPORTER_OTLP_ENDPOINT`; by default `http://localhost:4318`, every 60 s. Needs
                `weir-streams[otel]`. From outside it is `otel`, as in `WEIR_OTEL=true`. Default: nothing is sent.

        Raises:
            PipelineError: the pipeline can't run as written, its web server can't listen, or a variable of
                OpenTelemetry's can't be honoured.
        """
        if _refuses_starts:
            raise PipelineError(
                "the job is started while the weir command only reads the script: put what starts it under "
                'if __name__ == "__main__":, and the script does the same when Python runs it'
            )
        options = self.options(
            str(restore),
            spark=spark,
            claim=claim,
            rewind=rewind,
            allow_unclaimed=allow_unclaimed,
            ignore_in_flight=ignore_in_flight,
            take_over=take_over,
        )
        for warning in unused_streams(self._graph):
            _LOG.warning("job %s: %s", self.name, warning)
        exporter = self._metrics_exporter(otel)
        server = self._web_server(http)
        try:
            self._newest = JobHandle._start(options, server, exporter)
        except BaseException:
            if server is not None:
                server.close()
            raise
        return self._newest

    def _web_server(self, http: str | None) -> HttpServer | None:
        """It listens already."""
        where = self._given.value("http", http)
        if where is None or where == "":
            return None
        address = Address.parse(where, self._given.origin("http"))
        # Its libraries are an extra.
        from pipeline.http.server import HttpServer

        return HttpServer(address, self.ready_within, self._certificate())

    def _metrics_exporter(self, otel: bool) -> MetricsExporter | None:
        if not self._given.flag("otel", otel):
            return None
        # Its libraries are an extra, too.
        from pipeline.otel.exporter import metrics_exporter

        return metrics_exporter(self.ready_within)

    def _certificate(self) -> Certificate | None:
        origin = self._given.origin("http_certificate") or self._given.origin("http_key")
        if self.http_certificate is not None:
            return Certificate(self.http_certificate, self.http_key, origin)
        if self.http_key is not None:
            raise PipelineError(f"http_key needs http_certificate, the file of the certificate{origin}")
        return None

    def options(
        self,
        restore: str,
        *,
        spark: Any,
        claim: bool | None,
        rewind: bool,
        allow_unclaimed: bool,
        ignore_in_flight: int | None,
        take_over: bool = False,
    ) -> JobOptions:
        """All that a start with these arguments goes by (see `start`).

        Raises:
            PipelineError: the pipeline can't run as written.
        """
        check_arguments(restore, claim, ignore_in_flight)
        if self.encrypt:
            require_library()
        planned = self.plan()
        leads_nowhere = list(dead_ends(self._graph))
        if leads_nowhere:
            raise PipelineError("\n".join(leads_nowhere))
        return JobOptions(
            name=self.name,
            plan=planned,
            max_parallelism=self.max_parallelism,
            checkpoints=self.checkpoints,
            restart=self.restart,
            buffers=self.buffers,
            restore=restore,
            claim=claim,
            rewind=rewind,
            allow_unclaimed=allow_unclaimed,
            ignore_in_flight=ignore_in_flight,
            spark=spark,
            take_over=take_over,
            autoscale=self.autoscale,
            encrypt=self.encrypt,
            stop_grace=self.stop_grace,
            show_keys=self.show_keys,
            graph=self._graph.rescaled(None, {}),  # a copy: the pipeline may get more steps
        )

    def run(
        self,
        restore: str | Path = "latest",
        *,
        spark: Any = None,
        claim: bool | None = None,
        rewind: bool = False,
        allow_unclaimed: bool = False,
        ignore_in_flight: int | None = None,
        take_over: bool = False,
        http: str | None = None,
        otel: bool = False,
        timeout: float | timedelta | None = None,
    ) -> JobHandle:
        """Start the job and wait for its end. Ctrl-C and SIGTERM stop it behind a last checkpoint (see
        `JobHandle.wait`), and this returns; a second one cancels it.

        Args:
            timeout: seconds, or a `timedelta`, that the job may take; then it is cancelled. `None` (the default) = any
                time. The others are those of `start`.

        Raises:
            JobFailed: with the first cause and, if it was user code, the user's traceback.
            JobCancelled: somebody cancelled it; a signal: `Interrupted`.
            TimeoutError: `timeout` passed; the job was cancelled.
        """
        with signals.waiting():
            handle = self.start(
                restore,
                spark=spark,
                claim=claim,
                rewind=rewind,
                allow_unclaimed=allow_unclaimed,
                ignore_in_flight=ignore_in_flight,
                take_over=take_over,
                http=http,
                otel=otel,
            )
            try:
                handle.wait(timeout)
            except BaseException:
                handle.cancel()
                raise
        return handle


def _check_bounds(autoscale: Autoscale, parallelism: int, max_parallelism: int, given: settings.Settings) -> None:
    if autoscale.most > max_parallelism:
        raise PipelineError(
            f"autoscale.most is {autoscale.most}{given.origin('autoscale.most')}, and a step has at most "
            f"max_parallelism = {counted(max_parallelism, 'subtask')}{given.origin('max_parallelism')}"
        )
    if not autoscale.least <= parallelism <= autoscale.most:
        bounds = f"{autoscale.least} to {autoscale.most}"
        raise PipelineError(
            f"parallelism is {parallelism}{given.origin('parallelism')}, and autoscale goes from {bounds}"
            f"{given.origin('autoscale.most') or given.origin('autoscale.least')}: begin within these bounds"
        )


def _duration(name: str, own: Any, given: settings.Settings) -> float:
    try:
        return seconds(given.value(name, own), name)
    except ValueError as error:
        raise PipelineError(f"{error}{given.origin(name)}") from error
