"""The command `weir`: finding pipelines, options from outside, exit statuses, ends by signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from weir_process import await_line, started

from checkpoint.config import CheckpointConfig
from pipeline import Pipeline, PipelineError, settings
from pipeline.broker.ports import free_ports
from pipeline.broker.readiness import await_broker
from pipeline.cli import main
from pipeline.cli.script import find_pipeline
from pipeline.testing import KafkaBroker
from pipeline.version import VERSION
from sinks import PrintSink
from sources import SequenceSource

IMPORTS = """
from pipeline import Pipeline
from sinks import PrintSink
from sources import SequenceSource
"""
ONE = IMPORTS + 'p = Pipeline("one", parallelism=3)\np.source("numbers", SequenceSource(5)).sink("out", PrintSink())\n'


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a script can be put; what running it changes in this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("WEIR_SCRIPT_FOLDER", "")
    before = set(sys.modules)
    yield tmp_path / "job.py"
    for name in set(sys.modules) - before:
        if name.startswith("weir_script_"):
            del sys.modules[name]


def test_version_is_the_distributions() -> None:
    assert weir("--version").output == f"weir, version {VERSION}\n"


def test_help_names_the_commands() -> None:
    output = weir("--help").output
    assert all(command in output for command in ("run", "kafka", "demo", "bench"))


@pytest.mark.parametrize(
    "path", ["", *(name for name, command in main.commands.items() if isinstance(command, click.Group))]
)
def test_help_cuts_no_sentence_about_a_command(path: str) -> None:
    commands = weir(*path.split(), "--help").output.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


# -- finding the pipeline ---------------------------------------------------------------------------------------------


def test_the_only_pipeline_is_found_without_a_name(script: Path) -> None:
    script.write_text(ONE)
    assert find_pipeline(str(script)).name == "one"


def test_one_of_several_pipelines_is_found_by_its_name(script: Path) -> None:
    script.write_text(ONE + 'second = Pipeline("two")\n')
    assert find_pipeline(f"{script}:second").name == "two"


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        (None, "", "there is no file"),
        ("x = 1\n", "", "must define a Pipeline at module level"),
        (ONE + 'q = Pipeline("two")\n', "", "it defines p, q; choose one with FILE:NAME"),
        (ONE, ":other", "other isn't there"),
        (ONE + "x = 1\n", ":x", "x is of type int"),
    ],
)
def test_an_unclear_choice_is_refused(script: Path, text: str | None, suffix: str, message: str) -> None:
    if text is not None:
        script.write_text(text)
    with pytest.raises(click.ClickException, match=message):
        find_pipeline(f"{script}{suffix}")


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=f"{tmp_path} is a folder"):
        find_pipeline(str(tmp_path))


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)", "sys.exit('no')", "raise SystemExit(3)"])
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_script_that_ends_by_being_read_is_an_error(script: Path, command: str, end: str) -> None:
    """Its status may be 0, and nothing has run."""
    script.write_text(f"import sys\n{ONE}{end}\n")
    result = weir(command, str(script))
    assert result.exit_code == 1
    assert "while the weir command was reading it: put what ends it under" in result.output


def test_sigterm_while_a_script_is_read_ends_the_command(script: Path) -> None:
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    result = weir("plan", str(script))
    assert (result.exit_code, result.output) == (143, "")


@pytest.mark.parametrize(
    "arguments", [("--http", "nonsense"), ("--autoscale", "3:1"), ("--autoscale", "2:4", "--parallelism", "1")]
)
def test_an_error_about_an_option_names_it_as_it_was_given(script: Path, arguments: tuple[str, ...]) -> None:
    script.write_text(ONE)
    result = weir("run", str(script), *arguments)
    assert result.exit_code == 1
    assert f"(from {arguments[0]})" in result.output or f"(from {arguments[0]}, " in result.output
    assert "--set" not in result.output


def test_a_failing_script_shows_its_own_frames_only(script: Path) -> None:
    script.write_text("def broken():\n    return 1 / 0\n\nbroken()\n")
    result = weir("run", str(script))
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.output
    assert "return 1 / 0" in result.output
    assert "importlib" not in result.output


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        ("8", 2, "--autoscale 8: write LEAST:MOST, as in 1:8"),
        ("1:many", 1, "most must be a whole number of at least 1, not 'many'"),
        ("4:8", 1, "parallelism is 3, and autoscale goes from 4 to 8"),
    ],
)
def test_bounds_of_autoscale_that_cannot_be_are_refused(script: Path, given: str, status: int, message: str) -> None:
    script.write_text(ONE)
    result = weir("run", str(script), "--autoscale", given)
    assert (result.exit_code, message in " ".join(result.output.split())) == (status, True), result.output


@pytest.mark.parametrize(
    "wrong",
    [
        'KafkaSource("localhost:9092", topics="orders")',
        'KafkaSource("localhost:9092", topics=["orders"], config={"group.id": "mine"})',
        'CheckpointConfig("file:///tmp/weir", interval="2s")',
        'CheckpointConfig("file:///tmp/weir", intervall=2)',
        'KafkaSource("localhost:9092", topics=["orders"], value_format="jsn")',
    ],
)
def test_a_wrong_option_is_shown_where_the_script_gives_it(script: Path, wrong: str) -> None:
    script.write_text(f"from pipeline import CheckpointConfig\nfrom sources import KafkaSource\n\nx = {wrong}\n")
    result = weir("plan", str(script))
    assert result.exit_code == 1
    frames = [line for line in result.output.splitlines() if line.lstrip().startswith('File "')]
    assert frames == [f'  File "{script}", line 4, in <module>']
    assert result.output.splitlines()[-1].startswith(("ValueError: ", "TypeError: "))


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("start", ["p.run()", "p.start().wait()", "try:\n    p.run()\nfinally:\n    pass"])
def test_a_script_that_starts_its_job_by_being_read_is_refused(script: Path, command: str, start: str) -> None:
    script.write_text(f"{ONE}\n{start}\n")
    result = weir(command, str(script))
    assert result.exit_code == 1
    assert 'put what starts it under if __name__ == "__main__":' in result.output
    assert "Traceback" not in result.output
    # What is made elsewhere in the process still starts.
    script.write_text(ONE)
    assert weir("plan", str(script)).exit_code == 0


def test_a_script_may_be_called_like_a_package_of_weirs(script: Path) -> None:
    namesake = script.with_name("pipeline.py")
    namesake.write_text(ONE)
    assert find_pipeline(str(namesake)).name == "one"


def test_the_scripts_folder_is_last_on_the_path(script: Path) -> None:
    script.with_name("beside.py").write_text("NAME = 'from-beside'\n")
    script.write_text(ONE.replace('"one"', "beside.NAME").replace("from sinks", "import beside\nfrom sinks"))
    assert find_pipeline(str(script)).name == "from-beside"
    assert sys.path[-1] == str(script.parent)


# -- options from outside ---------------------------------------------------------------------------------------------


def make(**options: object) -> Pipeline:
    p = Pipeline("job", **options)  # type: ignore[arg-type]
    p.source("numbers", SequenceSource(5)).rebalance().map(str, id="own", parallelism=3).sink("out", PrintSink())
    return p


def test_parallelism_from_outside_is_that_of_steps_without_their_own() -> None:
    with settings.overriding(settings.parse(["parallelism=4"])):
        p = make(parallelism=2)
    assert [(vertex.name, vertex.parallelism) for vertex in p.plan().vertices] == [("numbers", 4), ("own → out", 3)]
    assert make(parallelism=2).parallelism == 2


def test_options_from_outside_win_and_leave_the_others() -> None:
    with settings.overriding(settings.parse(["checkpoints.interval=5", "buffers.debloat=false"])):
        p = make(checkpoints=CheckpointConfig("/tmp/x", interval=1, timeout=7))
    assert p.checkpoints is not None
    assert (p.checkpoints.interval, p.checkpoints.timeout, p.buffers.debloat) == (5, 7, False)


def test_checkpoints_can_be_turned_on_from_outside() -> None:
    with settings.overriding(settings.parse(["checkpoints.uri=/tmp/x", "checkpoints.interval=2"])):
        p = make()
    assert p.checkpoints == CheckpointConfig("/tmp/x", interval=2)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("checkpoints.intervall=5", "no option 'checkpoints.intervall'; there are .*checkpoints.interval,"),
        ("interval", "no assignment"),
    ],
)
def test_an_unknown_option_is_wrong_usage(script: Path, assignment: str, message: str) -> None:
    script.write_text(ONE)
    with pytest.raises(PipelineError, match=message):
        settings.parse([assignment])
    assert weir("run", str(script), "--set", assignment).exit_code == 2


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["checkpoints.uri=/tmp/x", "checkpoints.interval=-1"], "interval must be at least"),
        (["checkpoints.interval=1"], "name a folder, too"),
        (["parallelism=many"], "parallelism must be a whole number"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(assignments: list[str], message: str) -> None:
    with settings.overriding(settings.parse(assignments)), pytest.raises(PipelineError, match=message):
        make()


def test_a_pipeline_that_cannot_run_is_an_error_without_traceback(script: Path) -> None:
    script.write_text(IMPORTS + 'p = Pipeline("empty")\n')
    result = weir("run", str(script))
    assert result.exit_code == 1
    assert "Error: the pipeline has no source" in result.output
    assert "Traceback" not in result.output


# -- running ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "told"), [((), True), (("--quiet",), False)])
def test_a_start_that_is_refused_says_what_it_did_unless_it_is_to_be_quiet(
    script: Path, options: tuple[str, ...], told: bool
) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    script.write_text(
        IMPORTS
        + "from sources import KafkaSource\n"
        + f'p = Pipeline("refused")\np.source("in", KafkaSource("{address}", topics=["a"], end="latest"))'
        + '.sink("out", PrintSink())\n'
    )
    with started("run", str(script), *options) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert f"Error: job 'refused' failed: PipelineError: step 'in': cannot list topics at {address}" in output
    assert "Traceback" not in output
    assert (" INFO    job refused: starting at 127.0.0.1:" in output) is told


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_plain_script_tells_what_its_job_does(script: Path) -> None:
    script.write_text(ONE + 'if __name__ == "__main__":\n    p.run()\n')
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if " INFO    job one: " in line]
    wanted = ("starting at 127.0.0.1:", "checking", "all checks passed", "Spark ", "attempt 1 begins from nothing")
    for line, text in zip(said, (*wanted, "3 subtasks are up", "running from nothing after"), strict=False):
        assert text in line
    assert all(phase in said[6] for phase in ("checks", "Spark", "deploy", "restore"))


@pytest.mark.slow
def test_a_failing_job_exits_with_1_and_the_users_traceback(script: Path) -> None:
    # The function lies in a module beside the script, which workers find, too.
    script.with_name("beside.py").write_text("def broken(record):\n    raise ValueError('no good')\n")
    script.write_text(
        IMPORTS
        + "import beside\nfrom pipeline import RestartStrategy\n"
        + 'p = Pipeline("failing", restart=RestartStrategy.none())\n'
        + 'p.source("numbers", SequenceSource(5)).map(lambda r: beside.broken(r)).sink("out", PrintSink())\n'
    )
    with started("run", str(script)) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "job 'failing' failed: subtask numbers → map-1 → out[0] failed: ValueError: no good" in output
    assert 'beside.py", line 2, in broken' in output


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
@pytest.mark.parametrize(("grace", "signum", "status"), [("300", signal.SIGINT, 0), ("0", signal.SIGTERM, 143)])
def test_a_signal_stops_the_job_behind_a_last_checkpoint_or_cancels_it_where_that_may_take_no_time(
    script: Path, grace: str, signum: signal.Signals, status: int
) -> None:
    folder = script.with_name("checkpoints")
    script.write_text(ONE.replace("SequenceSource(5)", "SequenceSource(None, rate=10)"))
    options = ("--parallelism", "1", "--set", f"checkpoints.uri={folder}", "--set", "checkpoints.interval=1000")
    with started("run", str(script), *options, "--grace", grace) as process:
        await_line(process, "'id': 10")
        os.kill(process.pid, signum)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == status
    assert ("cancelling job 'one'" in output) == bool(status)
    assert len(list(folder.glob("one/chk-*/_metadata"))) == (not status)


@pytest.mark.slow
def test_weir_kafka_serves_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started("kafka", "--port", "0", "--topic", "lines:2", "--directory", str(tmp_path)) as process:
        address = await_line(process, "127.0.0.1:").strip().split()[-1]
        monkeypatch.setenv("WEIR_KAFKA_BOOTSTRAP", address)
        with KafkaBroker.start(kind="running") as broker:
            broker.produce("lines", [b"hello"], partition=1)
            assert [record.value for record in broker.consume("lines")] == [b"hello"]
        await_line(process, f"Ctrl-C ends the broker; {tmp_path} keeps its topics")
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
    with pytest.raises(TimeoutError):
        await_broker(address, 0.2)


@pytest.mark.parametrize(
    "arguments", [("--topic", "lines:none"), ("--topic", ":2"), ("--set", "log.retention.ms"), ("--port", "70000")]
)
def test_weir_kafka_refuses_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert weir("kafka", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "192.0.2.1"), "192.0.2.1 is no address of this machine"),
        (("--host", "no.such.host.invalid", "--port", "0"), "no.such.host.invalid is no address of this machine"),
        (("--port", "0", "--directory", "/proc/none"), "the broker's folder can't be used: "),
    ],
)
def test_weir_kafka_says_what_keeps_it_from_starting(arguments: tuple[str, ...], message: str) -> None:
    result = weir("kafka", *arguments)
    assert result.exit_code == 1
    assert f"Error: {message}" in result.output


def test_weir_kafka_says_that_its_port_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = weir("kafka", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "is taken by another server; choose another port" in result.output
