"""The demo's result, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from pipeline.demo.hours import ExpectedHours, HoursFindings
from pipeline.demo.validate import Carrier, Findings


@dataclass(frozen=True)
class Report:
    findings: Findings
    hours: HoursFindings
    """Of delays by airport and hour, beside the weather."""
    checkpoints_completed: int
    checkpoints_failed: int
    """The one in progress at a crash is among them."""
    checkpoint_p50_s: float | None
    checkpoint_p95_s: float | None
    max_span_records: int
    """The most records between two barriers of one source subtask."""
    gate_closed_s: float
    """How long the gate of the source subtask that was closed longest was closed."""
    restarts: int
    recovery_s: float | None
    """From the SIGKILL until a reader had new output; `None` if nothing was killed, or nothing was left to come."""
    seconds: float
    """From the job's start, Spark's included, to its end."""

    @property
    def ok(self) -> bool:
        return self.findings.ok and self.hours.ok

    def to_json(self) -> str:
        """One line."""
        f = self.findings
        return json.dumps(
            {
                "records_in": f.records_in,
                "records_out": f.records_out,
                "lost": f.lost,
                "duplicated": f.duplicated,
                "wrong": f.wrong,
                "checkpoints_completed": self.checkpoints_completed,
                "checkpoints_failed": self.checkpoints_failed,
                "checkpoint_p50_s": _rounded(self.checkpoint_p50_s),
                "checkpoint_p95_s": _rounded(self.checkpoint_p95_s),
                "max_span_records": self.max_span_records,
                "gate_closed_s": _rounded(self.gate_closed_s),
                "restarts": self.restarts,
                "recovery_s": _rounded(self.recovery_s),
                "seconds": _rounded(self.seconds),
                "hours": asdict(self.hours),
            }
        )

    def print(
        self, console: Console, carriers: Mapping[str, Carrier], airlines: Mapping[str, str], hours: ExpectedHours
    ) -> None:
        """As tables."""
        f = self.findings
        console.print(_delays(carriers, airlines))
        console.print(_winds(hours))
        table = Table(title="Every output record, as a reader sees it", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for label, value in (
            ("records in", f"{f.records_in:,}"),
            ("records out", f"{f.records_out:,}"),
            ("lost", f"{f.lost:,}"),
            ("duplicated", f"{f.duplicated:,}"),
            ("wrong", f"{f.wrong:,}"),
            ("hours of airports with flights", f"{self.hours.expected:,}"),
            (
                "of those lost / duplicated / wrong",
                f"{self.hours.lost:,} / {self.hours.duplicated:,} / {self.hours.wrong:,}",
            ),
            ("checkpoints completed / failed", f"{self.checkpoints_completed} / {self.checkpoints_failed}"),
            ("checkpoint duration p50 / p95", f"{_seconds(self.checkpoint_p50_s)} / {_seconds(self.checkpoint_p95_s)}"),
            ("most records between two barriers", f"{self.max_span_records:,}"),
            ("source gate closed", _seconds(self.gate_closed_s)),
            ("restarts", str(self.restarts)),
            ("from SIGKILL to new output", _seconds(self.recovery_s)),
            ("job", _seconds(self.seconds)),
        ):
            table.add_row(label, value)
        console.print(table)
        for example in f.examples:
            console.print(f"wrong: {example}", markup=False)
        if self.ok:
            console.print("Nothing lost, nothing doubled, every total right.", style="green")
        else:
            console.print("The output is NOT what it must be.", style="bold red")


def _delays(carriers: Mapping[str, Carrier], airlines: Mapping[str, str]) -> Table:
    table = Table(title="Arrival delay per carrier, New York 2013")
    for column in ("carrier", "flights", "no arrival", "mean delay", "worst"):
        table.add_column(column, justify="left" if column == "carrier" else "right", no_wrap=True)
    for code, figures in sorted(carriers.items(), key=lambda item: -item[1].flights):
        mean = "" if figures.mean is None else f"{figures.mean:+.1f} min"
        worst = "" if figures.worst is None else f"{figures.worst:+d} min"
        name = f"{code}  {airlines.get(code, '')}"
        table.add_row(name, f"{figures.flights:,}", f"{figures.without_delay:,}", mean, worst)
    return table


def _winds(hours: ExpectedHours) -> Table:
    table = Table(title="Departure delay by wind: windows of an hour, joined with the weather")
    for column in ("wind", "flights", "mean delay"):
        table.add_column(column, justify="left" if column == "wind" else "right", no_wrap=True)
    for label, flights, mean in hours.delay_by_wind():
        table.add_row(label, f"{flights:,}", "" if mean is None else f"{mean:+.1f} min")
    return table


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
