"""Tables and text on a terminal: readable at 100 columns, and in a file."""

from __future__ import annotations

import sys
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.shown_times import human_time as human_time
from pipeline.shown_times import time_of as time_of

_FILE_WIDTH: Final = 100


def open_console() -> Console:
    # A file has no width of its own.
    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, markup=False, emoji=False, highlight=False)


def say(console: Console, text: str) -> None:
    """Unbroken, so that paths can be copied."""
    console.print(text, soft_wrap=True)


def table_of(*columns: str) -> Table:
    """A column whose name ends in `>` is aligned right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        name = column.rstrip(">")
        number = column != name
        # A number in two lines can't be read; names give way.
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return table


def rate_of(per_second: float) -> str:
    """`0`, `0.3`, `1,234`."""
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.1f}"


def share_of(ms_per_second: float) -> str:
    """`37 %`."""
    return f"{ms_per_second / 10:.0f} %"


def human_size(size: int | None) -> str:
    if size is None:
        return "?"
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
