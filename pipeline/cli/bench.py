"""`weir bench`: measurements."""

from __future__ import annotations

import click

from pipeline.cli.bench_backpressure import backpressure
from pipeline.cli.bench_compare import compare
from pipeline.cli.bench_due_keys import due_keys
from pipeline.cli.bench_growth import growth
from pipeline.cli.bench_latency import latency
from pipeline.cli.bench_start import start
from pipeline.cli.bench_state import state, state_growth
from pipeline.cli.bench_throughput import delivery, throughput
from pipeline.cli.common import Group


@click.group(cls=Group)
def bench() -> None:
    """Measurements, in ratios within one run. With --json each writes versions, machine and settings, too; `compare`
    puts two such files side by side."""


for command in (throughput, delivery, latency, start, growth, backpressure, state, state_growth, due_keys, compare):
    bench.add_command(command)
