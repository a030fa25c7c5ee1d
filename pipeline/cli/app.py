"""The command's groups. What a subcommand needs is imported when it runs, so that `weir --help` comes at once."""

from __future__ import annotations

import os

import click

from pipeline.cli.bench import bench
from pipeline.cli.checkpoints import checkpoints
from pipeline.cli.common import Group
from pipeline.cli.deadletters import deadletters
from pipeline.cli.demo import demo
from pipeline.cli.kafka import kafka
from pipeline.cli.operate import commands as operate
from pipeline.cli.plan import plan
from pipeline.cli.run import run
from pipeline.cli.sink import sink
from pipeline.cli.state import state
from pipeline.cli.top import top
from pipeline.version import VERSION

_SETTINGS = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WEIR", "max_content_width": 100}


@click.group(cls=Group, context_settings=_SETTINGS)
@click.version_option(VERSION, prog_name="weir")
def main() -> None:
    """Stream processing in Python on Spark: Kafka to Kafka exactly once.

    Each option can also be set by a variable named after command and option: WEIR_DEMO_RECORDS=1000.
    """
    if any(name.startswith("WEIR_") for name in os.environ):
        from pipeline import settings
        from pipeline.errors import PipelineError

        try:
            settings.from_environment(os.environ)
        except PipelineError as error:
            raise click.UsageError(str(error)) from error


for command in (run, plan, *operate, top, sink, kafka, deadletters, demo, bench, checkpoints, state):
    main.add_command(command)
