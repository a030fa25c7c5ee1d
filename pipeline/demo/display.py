"""Shows the demo's progress: live on a terminal, line by line elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from checkpoint.counted import counted
from pipeline.demo.observe import Snapshot
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats

_LINE_EVERY: Final = 2.0
_CHECKPOINTS: Final = 6


class Display(Protocol):
    def say(self, text: str) -> None:
        """Something happened."""

    def show(self, snapshot: Snapshot) -> None:
        """The job as it is now."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def display_on(console: Console) -> Display:
    """The one that suits the console."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class PlainDisplay:
    """A line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.seconds < self._next:
            return
        self._next = snapshot.seconds + _LINE_EVERY
        self.say(
            f"{snapshot.seconds:5.1f} s  {snapshot.phase:<20} in {snapshot.read:>9,}  out {snapshot.out:>9,}  "
            f"{snapshot.rate:>7,.0f}/s  {_checkpoints(snapshot)}; gate {_gate(snapshot)}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LiveDisplay:
    """A panel that changes in place, below the lines of what happened."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def show(self, snapshot: Snapshot) -> None:
        self._live.update(_panel(snapshot))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def _panel(snapshot: Snapshot) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_column()
    rows.add_row("phase", f"{snapshot.phase}  ({snapshot.seconds:.0f} s)")
    rows.add_row("in", _bar(snapshot.read, snapshot.records))
    rows.add_row("out, committed", _bar(snapshot.out, snapshot.records))
    rows.add_row("rate", f"{snapshot.rate:,.0f} records/s")
    for number, reason in enumerate(snapshot.gates):
        gate = Text("open", style="green") if reason is None else Text(f"closed: {reason}", style="yellow")
        rows.add_row(f"gate of flights[{number}]", gate)
    rows.add_row("checkpoints", _checkpoints(snapshot))
    if snapshot.restarts:
        rows.add_row("restarts", str(snapshot.restarts))
    return Group(rows, _table(snapshot.checkpoints[-_CHECKPOINTS:]))


def _bar(value: int, total: int) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=max(total, 1), completed=value, width=40), f"{value:,} of {total:,}")
    return row


def _table(checkpoints: tuple[CheckpointStats, ...]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("checkpoint", "status", "duration", "alignment", "spans"):
        table.add_column(column, justify="left" if column == "status" else "right")
    for row in checkpoints:
        table.add_row(
            str(row.id),
            row.status.replace("_", " "),
            "" if row.duration is None else f"{row.duration:.2f} s",
            f"{row.alignment:.2f} s",
            counted(row.span_records, "record") if row.subtasks else "",
        )
    return table


def _checkpoints(snapshot: Snapshot) -> str:
    """How many are complete, how long the newest took, and what is under way."""
    completed = [row for row in snapshot.checkpoints if row.status == "completed"]
    failed = sum(row.status == "failed" for row in snapshot.checkpoints)
    parts = [counted(len(completed), "checkpoint")]
    if completed and completed[-1].duration is not None:
        parts.append(f"the last in {completed[-1].duration:.2f} s")
    if failed:
        parts.append(f"{failed} failed")
    if any(row.status == "in_progress" for row in snapshot.checkpoints):
        parts.append("one in progress")
    return ", ".join(parts)


def _gate(snapshot: Snapshot) -> str:
    closed = sorted({reason for reason in snapshot.gates if reason is not None})
    return f"closed ({'; '.join(closed)})" if closed else "open"
