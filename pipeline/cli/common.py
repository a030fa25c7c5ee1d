"""What all subcommands share: how they end, and what they log."""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""
_TERMINATED: Final = 143
_ARGUMENT: Final = re.compile(
    r'(?<!\w)(?<!\w\()(allow_unclaimed|rewind|claim|ignore_in_flight|restore)=(True|False|\d+|"none"|\'latest\')'
)


class Terminated(SystemExit):
    """SIGTERM has come."""


class Group(click.Group):
    """A command with subcommands, whose help has the whole first sentence of each: click would cut it to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(1000)) for name in sorted(self.commands)])


@contextmanager
def ending_cleanly(jobs_first: bool = False) -> Iterator[None]:
    """Runs a command's body so that Ctrl-C and SIGTERM unwind it, and it stops what it started.

    Args:
        jobs_first: not while it waits for a job, which is stopped then (`pipeline.runtime.driver.signals`).

    Raises:
        SystemExit: 130 after Ctrl-C, 143 after SIGTERM.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    interrupted = False

    def interrupt(*_: Any) -> NoReturn:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def terminate(*_: Any) -> NoReturn:
        raise Terminated(_TERMINATED)

    for handler in (interrupt, terminate):
        handler.weir_gives_way = jobs_first  # type: ignore[attr-defined]
    before = (
        (signal.signal(signal.SIGTERM, terminate), signal.signal(signal.SIGINT, interrupt)) if main_thread else None
    )
    try:
        yield
    except (KeyboardInterrupt, Exception) as error:
        # An interrupt inside a C extension may come out as an error of its own.
        if not (interrupted or isinstance(error, KeyboardInterrupt)):
            raise
        tell("interrupted")
        raise SystemExit(INTERRUPTED) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before[0])
            signal.signal(signal.SIGINT, before[1])


def tell(message: str, *arguments: object, level: int = logging.INFO) -> None:
    """On standard error, as a line of the log if that is JSON.

    Args:
        message, arguments: as of a logger.
    """
    from pipeline.logs import log_format

    if log_format() == "json":
        logging.getLogger("weir.pipeline.cli").log(level, message, *arguments)
    else:
        click.echo(message % arguments if arguments else message, err=True)


@contextmanager
def told_errors() -> Iterator[None]:
    """An error of the command that ends the body is told by `tell`.

    Raises:
        SystemExit: instead of the error, with its status, if the log is JSON.
    """
    from pipeline.logs import log_format

    try:
        yield
    except click.ClickException as error:
        if log_format() != "json":
            raise
        tell("%s", error.format_message(), level=logging.ERROR)
        raise SystemExit(error.exit_code) from None


def in_options(text: str) -> str:
    """An error's text with the arguments of `Pipeline.start` that it advises as options of `weir run`."""
    return _ARGUMENT.sub(_as_option, text)


def _as_option(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2].strip("\"'")
    if value in ("True", "False"):
        return f"--{name}" if value == "True" else f"--no-{name}"
    return f"--{name} {value}"


def log_to_stderr(default: str) -> None:
    """Log from `default` on, or from the level that WEIR_LOG_LEVEL names, in the format of WEIR_LOG_FORMAT.

    Raises:
        UsageError: one of them names none.
    """
    from pipeline.errors import PipelineError
    from pipeline.logs import log_everything

    try:
        log_everything(default)
    except PipelineError as error:
        raise click.UsageError(str(error)) from error
