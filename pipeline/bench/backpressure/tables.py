"""A result as tables, for the terminal and as Markdown. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.bench.backpressure.comparison import Compared, compare
from pipeline.bench.backpressure.load import Load
from pipeline.bench.backpressure.results import Result, Run
from pipeline.bench.backpressure.variants import RESCALED, Settings, Variant
from pipeline.buffers import KIB

_NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the run, the others are figures unless `words`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False

    def to_markdown(self) -> str:
        aligned = ("---", *("---" if self.words else "---:" for _ in self.columns[1:]))
        lines = [f"| {' | '.join(cells)} |" for cells in (self.columns, aligned, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines, ""])


def tables(result: Result) -> tuple[Table, ...]:
    """What was run, how its checkpoints did, what they held, what it cost, and how runs compare with the one of their
    group that has no gate."""
    runs = result.runs
    compared = compare(runs)
    return (
        _described(result),
        Table(
            "Checkpoints: duration and start delay",
            ("run", "p50", "p95", "max", "delay p50", "delay max", "completed", "unaligned", "failed", "in progress"),
            tuple(_durations(run) for run in runs),
        ),
        Table(
            "Checkpoints: span of a source, data in flight, all that is written",
            (
                "run",
                "span records p50",
                "span records max",
                "span bytes max",
                "in-flight records p50",
                "in-flight bytes p50",
                "in-flight bytes max",
                "size p50",
                "window end",
                "window max",
            ),
            tuple(_contents(run) for run in runs),
        ),
        Table(
            "The job",
            (
                "run",
                "records/s",
                "peak fetch/s",
                "queued max",
                "gate closed",
                "driver",
                "JVM",
                "worker",
                "all",
                "GC JVM",
                "GC driver",
                "GC workers",
            ),
            tuple(_job(run) for run in runs),
        ),
        *([_compared(compared)] if compared else []),
    )


def to_markdown(result: Result) -> str:
    return "\n".join(table.to_markdown() for table in tables(result))


def _settings(settings: Settings) -> str:
    tolerated = "no failure tolerated" if settings.tolerable_failures == 0 else "failures tolerated"
    return (
        f"a checkpoint every {settings.interval:g} s, {settings.max_concurrent} at a time, timeout "
        f"{settings.timeout:g} s, {tolerated}"
    )


def _described(result: Result) -> Table:
    columns = ("run", "barriers", "gate", "buffers", "operators", "source could do", "besides")
    rows = [described(run.variant) for run in result.runs if run.round == 1]
    shown = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    cells = tuple(row[:shown] for row in rows)
    return Table(f"Runs: {_settings(result.settings)}", columns[:shown], cells, words=True)


def described(variant: Variant) -> tuple[str, ...]:
    """Name, barriers, gate, buffers, operators, source and what else there is, in words."""
    aligned = isinstance(variant.alignment, str)
    buffers = variant.buffer_config
    return (
        variant.name,
        str(variant.alignment) if aligned else f"aligned, unaligned after {variant.alignment:g} s",
        _gate(variant),
        "debloated" if buffers.debloat else f"fixed, {_size(buffers.max_bytes)} a subtask",
        _operators(variant.load),
        _source(variant.load),
        _besides(variant),
    )


def _gate(variant: Variant) -> str:
    if not variant.gate:
        return "off"
    said = "window" if variant.window else "by time"
    if variant.max_span_records is not None:
        said += f", ≤ {variant.max_span_records:,} records"
    if variant.slow_storage_span is not None:
        said += f", slow storage {variant.slow_storage_span:g} s"
    return said


def _operators(load: Load) -> str:
    change = load.change
    changed = None if change is None or change.delay is None else _delay(change.delay)
    return _delay(load.delay) + ("" if changed is None else f"; {changed} {_when(load)}")


def _delay(seconds: float) -> str:
    return f"{1000 * seconds:g} ms a record" if seconds else "fast"


def _source(load: Load) -> str:
    change = load.change
    changed = None if change is None or change.rate is None else f"{change.rate:,.0f}"
    return f"{load.rate:,.0f} records/s" + ("" if changed is None else f"; {changed} {_when(load)}")


def _when(load: Load) -> str:
    change = load.change
    assert change is not None
    if change.period is None:
        return f"from {_tenths(change.begin)} to {_tenths(change.end)} s"
    return f"for {_tenths(change.end - change.begin)} s of each {_tenths(change.period)} s"


def _besides(variant: Variant) -> str:
    said = []
    if variant.shares:
        said.append(f"source subtasks get {' : '.join(map(str, variant.shares))}")
    if variant.storage_delay:
        said.append(f"storage takes {variant.storage_delay:g} s")
    what = variant.interruption
    if what is not None:
        done = "a worker killed" if what.kind == "restart" else f"rescaled to {RESCALED}"
        said.append(f"{done} after {_tenths(what.at)} s")
    return "; ".join(said)


def _tenths(seconds: float) -> str:
    return f"{round(seconds, 1):g}"


def _durations(run: Run) -> tuple[str, ...]:
    s = run.summary
    longest = _time(s.duration.max)
    if s.oldest_in_progress is not None and s.oldest_in_progress > (s.duration.max or 0.0):
        # One that is still in progress will take longer than all that have completed.
        longest = f"> {_time(s.oldest_in_progress)}"
    ended = " (job failed)" if run.failure else ""
    return (
        run.name,
        _time(s.duration.p50),
        _time(s.duration.p95),
        longest,
        _time(s.start_delay.p50),
        _time(s.start_delay.max),
        str(s.completed),
        str(s.unaligned),
        f"{s.failed}{ended}",
        str(s.in_progress),
    )


def _contents(run: Run) -> tuple[str, ...]:
    s = run.summary
    return (
        run.name,
        _records(s.span_records.p50),
        _records(s.span_records.max),
        _size(s.span_bytes.max),
        _records(s.in_flight_records.p50),
        _size(s.in_flight_bytes.p50),
        _size(s.in_flight_bytes.max),
        _size(s.size.p50),
        _records(s.window_end),
        _records(s.window_max),
    )


def _job(run: Run) -> tuple[str, ...]:
    s, cost = run.summary, run.cost
    return (
        run.name,
        _NOTHING if s.records_per_s is None else f"{s.records_per_s:,.0f}",
        _NOTHING if s.fetched_per_s_max is None else f"{s.fetched_per_s_max:,.0f}",
        _size(s.queued_bytes_max),
        f"{100 * s.gate_closed:.0f} %",
        *(_size(size) for size in (cost.driver_bytes, cost.jvm_bytes, cost.worker_bytes, cost.total_bytes)),
        *(f"{ms:.0f} ms" for ms in (cost.jvm_gc_ms, cost.driver_gc_ms, cost.workers_gc_ms)),
    )


def _compared(rows: tuple[Compared, ...]) -> Table:
    return Table(
        "Beside the run without a gate",
        ("run", "records/s", "ratio", "ratio least", "ratio most", "p50", "× shorter", "to full speed", "rounds"),
        tuple(_comparison(row) for row in rows),
    )


def _comparison(row: Compared) -> tuple[str, ...]:
    slowest = _NOTHING
    if row.slowest is not None:
        unreached = row.slowest.until - row.slowest.at
        slowest = f"> {_time(unreached)}" if row.slowest.after is None else f"{row.slowest.after:.1f} s"
    return (
        row.name,
        _records(row.records_per_s),
        *(_NOTHING if ratio is None else f"{ratio:.3f}" for ratio in (row.ratio, row.ratio_least, row.ratio_most)),
        _time(row.duration),
        _NOTHING if row.shorter is None else f"{row.shorter:.1f}",
        slowest,
        str(row.rounds),
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return _NOTHING
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _records(count: float | None) -> str:
    return _NOTHING if count is None else f"{count:,.0f}"


def _size(size: float | None) -> str:
    if size is None:
        return _NOTHING
    if size < KIB:
        return f"{size:.0f} B"
    if size < KIB * KIB:
        return f"{size / KIB:.0f} KiB"
    mib = size / KIB / KIB
    return f"{mib:.1f} MiB" if mib < 100 else f"{mib:.0f} MiB"
