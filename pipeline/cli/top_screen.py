"""What `weir top` shows of a job's status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.cli.drawing import human_size, human_time, rate_of, table_of
from pipeline.cli.operate_tables import facts

_WIDE: Final = 100
"""Columns from which on everything is shown."""
_BAR: Final = 20
_TROUBLES: Final = ("waits for", "trouble", "failure", "left out")


def screen(job: Mapping[str, Any], width: int, now: float) -> RenderableType:
    """
    Args:
        job: its status, as `weir status --json` gives it.
        width: of the terminal, in columns.
        now: seconds since 1970.
    """
    parts: list[RenderableType] = []
    for name, value in facts(dict(job)):
        line = Text(f"{name + ':':13}{value}", style="bold red" if name in _TROUBLES else "", overflow="fold")
        line.stylize("bold", 0, 13)
        parts.append(line)
    parts += [Text(""), _steps(job["vertices"], width), Text(""), _checkpoints(job["checkpoints"], width, now)]
    return Group(*parts)


def _steps(vertices: Mapping[str, Mapping[str, Any]], width: int) -> Table:
    wide = width >= _WIDE
    table = table_of("steps", "×>", "in/s>", "out/s>", *(("lag>", "queued>") if wide else ()), "busiest subtask")
    for name, one in vertices.items():
        lag = "" if one["recordsLag"] is None else f"{one['recordsLag']:,.0f}"
        more = (lag, human_size(round(one["inFlightBytes"]))) if wide else ()
        rates = (rate_of(one["recordsInPerSecond"]), rate_of(one["recordsOutPerSecond"]))
        bar = load_bar(one["busyMsPerSecond"], one["backPressuredMsPerSecond"], _BAR if wide else _BAR // 2)
        table.add_row(name, f"{one['subtasks']}", *rates, *more, bar)
    return table


def load_bar(busy: float, backpressured: float, cells: int) -> Text:
    """`██████▒▒▒▒·········· 30 % busy, 20 % backpressured`.

    Args:
        busy, backpressured: ms/s. Of several subtasks each is the largest, so that they may be more than one second
            together: then busy goes first.
    """
    full = min(cells, round(cells * busy / 1000))
    held = min(cells - full, round(cells * backpressured / 1000))
    bar = Text("█" * full, style="green" if busy < 900 else "red")
    bar.append("▒" * held, style="yellow").append("·" * (cells - full - held), style="dim")
    said = f" {busy / 10:.0f} % busy"
    if backpressured >= 10:
        said += f", {backpressured / 10:.0f} % backpressured"
    return bar.append(said, style="default")


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "start delay": lambda row: human_time(row["start_delay"]),
    "align": lambda row: human_time(row["alignment"]),
    "sync": lambda row: human_time(row["sync"]),
    "async": lambda row: human_time(row["async_"]),
    "in flight": lambda row: f"{row['in_flight_records']:,}",
    "span": lambda row: f"{row['span_records']:,}",
}


def _checkpoints(rows: list[Mapping[str, Any]], width: int, now: float) -> Table:
    """The newest first. Narrow terminals have the last two parts only."""
    parts = dict(list(_PARTS.items())[0 if width >= _WIDE else -2 :])
    table = table_of("checkpoint>", "status", "ago>", "took>", *(f"{name}>" for name in parts))
    for row in reversed(rows):
        status = row["status"].replace("_", " ")
        style = "red" if row["status"] == "failed" else ""
        ago, took = human_time(max(0.0, now - row["trigger_time"])), human_time(row["duration"])
        table.add_row(f"{row['id']}", status, ago, took, *(show(row) for show in parts.values()), style=style)
    return table
