"""`weir top`: a job's status, live in the terminal."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr
from pipeline.cli.operate import find_job, listed, secret_file_option

_PATIENCE: Final = 10.0


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Show it once and end, as into a pipe.")
@secret_file_option
def top(job: str | None, every: float, once: bool, secret_file: Path | None) -> None:
    """Watch a job: rates, what is busy and backpressured, gates, checkpoints, what it waits for. Leave with q.

    Without JOB, the only one that runs here. It goes on while the job restarts, and ends with the job.
    """
    from rich.live import Live

    from pipeline.cli.drawing import open_console
    from pipeline.cli.top_screen import screen
    from pipeline.runtime.driver.operations_client import JobRequestFailed, NotReached

    log_to_stderr("WARNING")
    with ending_cleanly():
        here = [one.address for one in listed()] if job is None else [job]
        if len(here) != 1:
            if not here:
                raise click.UsageError("no job of this user runs on this host")
            raise click.UsageError(f"{len(here)} run on this host: name one of {', '.join(here)}")
        target, console = find_job(here[0], secret_file), open_console()
        try:
            if once or not sys.stdout.isatty():
                console.print(screen(target.ask("status", _PATIENCE), console.width, time.time()))
                return
            with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    live.update(screen(target.ask("status", _PATIENCE), console.width, time.time()), refresh=True)
                    if _left(every):
                        return
        except (NotReached, JobRequestFailed) as error:
            raise click.ClickException(f"the job gives no answer any more: {error}") from error


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come at once, and are not shown."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _left(seconds: float) -> bool:
    """Whether q is pressed meanwhile."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q", "")
