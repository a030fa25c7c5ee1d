"""`weir status|metrics|open|checkpoint|savepoint|rescale|stop|cancel`: what can be done with a running job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlparse

import click

from checkpoint.counted import counted
from pipeline.cli.common import ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from pipeline.runtime.running_jobs import RunningJob

_ADDRESS: Final = re.compile(r"\S+:\d{1,5}")
_ENCRYPT_VARIABLE: Final = "WEIR_ENCRYPT"
_STATUS_TIMEOUT: Final = 10.0
_GRACE: Final = 10.0
"""Seconds beyond a request's own timeout for the job's answer that it has passed."""
_STOPS_AT: Final = 60.0

_job = click.argument("job", metavar="JOB")
secret_file_option = click.option(
    "--secret-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Holds the job's secret: the job's file in the state folder of the user that runs it, or the bare text. "
    "[default: that of this user's own jobs, else the variable WEIR_JOB_SECRET]",
)


def _timeout(what: str) -> Callable[[Any], Any]:
    return click.option(
        "--timeout", type=click.FloatRange(min=0.1), help=f"Seconds that {what} may take.  [default: no limit]"
    )


class JobTarget(NamedTuple):
    """A job that can be asked."""

    address: str
    secret: str
    encrypted: bool
    """Whether its connections are."""

    def ask(self, kind: str, patience: float | None, **arguments: Any) -> Any:
        from pipeline.runtime.driver.operations_client import ask

        return ask(self.address, self.secret, kind, patience, encrypted=self.encrypted, **arguments)


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@secret_file_option
@click.option("--json", "as_json", is_flag=True, help='One JSON object: of the job, or {"jobs": […]} without JOB.')
def status(job: str | None, secret_file: Path | None, as_json: bool) -> None:
    """How a job is doing: restarts, checkpoints, where recoveries spent their time. Without JOB, all that run here.

    JOB is the pipeline's name, or the address that the job printed at its start.
    """
    from pipeline.cli import operate_tables

    with _explaining("status"):
        if job is not None:
            found = find_job(job, secret_file).ask("status", _STATUS_TIMEOUT)
            if as_json:
                click.echo(json.dumps(found))
            else:
                operate_tables.print_status(found)
            return
        jobs = [_status_or_trouble(one) for one in listed()]
        if as_json:
            click.echo(json.dumps({"jobs": jobs}))
        else:
            operate_tables.print_jobs(jobs)


@click.command()
@_job
@secret_file_option
@click.option("--json", "as_json", is_flag=True, help='One JSON object: {"subtasks": …, "totals": …, "waits": …}.')
def metrics(job: str, secret_file: Path | None, as_json: bool) -> None:
    """All metrics of a job's subtasks, as they were reported last (twice a second).

    docs/metrics.md says what each of them means.
    """
    from pipeline.cli import metric_tables

    with _explaining("metrics"):
        found = find_job(job, secret_file).ask("metrics", _STATUS_TIMEOUT)
        if as_json:
            click.echo(json.dumps(found))
        else:
            metric_tables.print_metrics(found)


@click.command()
@_job
@_timeout("it")
@secret_file_option
def checkpoint(job: str, timeout: float | None, secret_file: Path | None) -> None:
    """Have a job take a checkpoint now, wait until it is complete, and print its id."""
    with _explaining("checkpoint"):
        click.echo(find_job(job, secret_file).ask("checkpoint", patience_of(timeout), timeout=timeout))


@click.command()
@_job
@click.argument("uri")
@_timeout("it")
@secret_file_option
def savepoint(job: str, uri: str, timeout: float | None, secret_file: Path | None) -> None:
    """Have a job write a savepoint to the folder URI, wait until it is complete, and print its URI. The job goes on.

    The folder must not exist yet, or be empty. It holds all that `weir run --restore URI` needs, and may be moved.
    """
    with _explaining("savepoint"):
        target = find_job(job, secret_file)
        click.echo(target.ask("savepoint", patience_of(timeout), uri=_absolute(uri), timeout=timeout))


@click.command()
@_job
@click.option("--savepoint", "uri", metavar="URI", help="Write a savepoint there, instead of a checkpoint.")
@click.option("--drain", is_flag=True, help="End all input first, so that every event timer fires. The job is done.")
@_timeout("it")
@secret_file_option
def stop(job: str, uri: str | None, drain: bool, timeout: float | None, secret_file: Path | None) -> None:
    """End a job behind a last checkpoint, with all output up to it committed. Prints the savepoint's URI, if any.

    The next start goes on from there. Should the checkpoint fail, the job goes on, and the exit status is 1.
    """
    with _explaining("stop"):
        target = find_job(job, secret_file)
        folder = None if uri is None else _absolute(uri)
        made = target.ask("stop", patience_of(timeout), savepoint=folder, drain=drain, timeout=timeout)
        click.echo(f"job {job!r} has stopped", err=True)
        if made is not None:
            click.echo(made)


@click.command()
@_job
@click.argument("parallelism", type=click.IntRange(min=1))
@click.option("--step", metavar="ID", help="Only this step, and those that follow it.")
@_timeout("it")
@secret_file_option
def rescale(job: str, parallelism: int, step: str | None, timeout: float | None, secret_file: Path | None) -> None:
    """Have a job go on at another PARALLELISM, wait until it runs, and print what has changed.

    It concerns the steps that set no parallelism of their own. The job takes a last checkpoint with what is in flight,
    and starts from it in the same process; output stays exact. Should the checkpoint fail, the job goes on as it was,
    and the exit status is 1. The next start goes by the script again.
    """
    with _explaining("rescale"):
        target = find_job(job, secret_file)
        arguments = {"parallelism": parallelism, "step": step, "timeout": timeout}
        click.echo(target.ask("rescale", patience_of(timeout), **arguments))


@click.command()
@_job
@secret_file_option
def cancel(job: str, secret_file: Path | None) -> None:
    """End a job at once. The next start goes on from its newest checkpoint; what came after it is read again."""
    with _explaining("cancel"):
        became = find_job(job, secret_file).ask("cancel", _STOPS_AT)
        click.echo(f"job {job!r}: {became}", err=True)


@click.command("open")
@_job
@secret_file_option
def open_page(job: str, secret_file: Path | None) -> None:
    """Print a link to a job's web server, for a browser on this host. It can be used once, within two minutes."""
    with _explaining("open"):
        click.echo(find_job(job, secret_file).ask("web_link", _STATUS_TIMEOUT))


for _option in checkpoint.params:
    if isinstance(_option, click.Option):
        # WEIR_CHECKPOINT_TIMEOUT would be taken for the pipeline's option, which is WEIR_CHECKPOINTS_TIMEOUT.
        _option.allow_from_autoenv = False


commands: Final = (status, metrics, open_page, checkpoint, savepoint, rescale, stop, cancel)


# -- finding the job --------------------------------------------------------------------------------------------


@contextmanager
def _explaining(what: str) -> Iterator[None]:
    from pipeline.runtime.driver.operations_client import JobRequestFailed, NotReached

    log_to_stderr("WARNING")
    with ending_cleanly():
        try:
            yield
        except NotReached as error:
            raise click.ClickException(str(error)) from error
        except JobRequestFailed as error:
            late = " It may still come about: `weir status` tells." if error.error == "TimeoutError" else ""
            raise click.ClickException(f"{what} failed: {error}.{late}") from error


def find_job(job: str, secret_file: Path | None) -> JobTarget:
    """
    Raises:
        ClickException: there is no such job, there are several, or its secret isn't known.
    """
    from pipeline.runtime.driver.operations_client import SECRET_VARIABLE

    here = listed()
    matching = [one for one in here if job in (one.name, one.address)]
    if len(matching) > 1:
        addresses = ", ".join(one.address for one in matching)
        raise click.ClickException(
            f"{counted(len(matching), 'job')} called {job!r} run here: choose one by its address, {addresses}"
        )
    if not matching and not _ADDRESS.fullmatch(job):
        there = ", ".join(f"{one.name} ({one.address})" for one in here) or "none"
        raise click.ClickException(
            f"no job called {job!r} of this user runs on this host; there runs: {there}. Give a job of another user by "
            "its address and --secret-file; ask a job on another host from there"
        )
    address = matching[0].address if matching else job
    if secret_file is not None:
        return JobTarget(address, *_secret_in(secret_file))
    if matching:
        return JobTarget(address, matching[0].secret, matching[0].encrypted)
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        raise click.ClickException(
            f"no job of this user on this host has the address {address}. If it has ended, there is nothing to ask; "
            f"to ask another user's job, give its secret by --secret-file or {SECRET_VARIABLE}"
        )
    return JobTarget(address, _checked(secret, SECRET_VARIABLE), _encrypts_by_variable())


def listed() -> list[RunningJob]:
    """Jobs of this user on this host.

    Raises:
        ClickException: their folder can't be read.
    """
    from pipeline.runtime.running_jobs import FOLDER_VARIABLE, running_jobs

    try:
        return running_jobs()
    except (OSError, RuntimeError) as error:
        raise click.ClickException(
            f"cannot read the folder of running jobs: {error}. {FOLDER_VARIABLE} names another one"
        ) from error


def _secret_in(path: Path) -> tuple[str, bool]:
    """And whether the job encrypts."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read the secret in {path}: {error}") from error
    try:
        content = json.loads(text)
    except ValueError:
        content = text
    secret = content.get("secret") if isinstance(content, dict) else text
    if not isinstance(secret, str):
        raise click.ClickException(f"{path} has no secret in it; give the job's own file, or one with the bare text")
    encrypts = content.get("encrypted", False) if isinstance(content, dict) else _encrypts_by_variable()
    return _checked(secret, str(path)), encrypts is True


def _encrypts_by_variable() -> bool:
    """Where nothing but the secret is known of a job."""
    from pipeline.errors import PipelineError
    from pipeline.settings import from_environment

    given = from_environment({_ENCRYPT_VARIABLE: os.environ.get(_ENCRYPT_VARIABLE, "")})
    try:
        return given.flag("encrypt", False)
    except PipelineError as error:
        raise click.ClickException(str(error)) from error


def _checked(secret: str, origin: str) -> str:
    from pipeline.runtime.driver.operations_client import LEAST_SECRET

    if len(secret.encode()) < LEAST_SECRET:
        raise click.ClickException(
            f"{origin}: a job's secret has at least {LEAST_SECRET} bytes, and this one has fewer"
        )
    return secret


def _status_or_trouble(job: RunningJob) -> dict[str, Any]:
    from pipeline.runtime.driver.operations_client import JobRequestFailed, NotReached

    try:
        found: dict[str, Any] = JobTarget(job.address, job.secret, job.encrypted).ask("status", _STATUS_TIMEOUT)
    except (NotReached, JobRequestFailed) as error:
        return {"name": job.name, "address": job.address, "pid": job.pid, "trouble": str(error)}
    return found


def patience_of(timeout: float | None) -> float | None:
    return None if timeout is None else timeout + _GRACE


def _absolute(uri: str) -> str:
    """The job's working directory need not be this one."""
    return uri if urlparse(uri).scheme else str(Path(uri).absolute())
