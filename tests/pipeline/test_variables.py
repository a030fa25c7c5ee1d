"""Variables that begin with WEIR_: nothing that a user sets is ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipeline import Pipeline, PipelineError, settings
from pipeline.cli import main
from pipeline.settings import Settings, from_environment, option_names

ROOT: Final = Path(__file__).parents[2]
OPTIONS: Final = [f"WEIR_{name.replace('.', '_').upper()}" for name in option_names()]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("WEIR_CHECKPOINT_INTERVAL", "WEIR_CHECKPOINTS_INTERVAL"),
        ("WEIR_CHECKPOINT_TIMEOUT", "WEIR_CHECKPOINTS_TIMEOUT"),
        ("WEIR_PARALELISM", "WEIR_PARALLELISM"),
        ("WEIR_CHECKPOINTS_INTERVALL", "WEIR_CHECKPOINTS_INTERVAL"),
        ("WEIR_BUFFER_TARGET", "WEIR_BUFFERS_TARGET"),
        ("WEIR_LOGLEVEL", "WEIR_LOG_LEVEL"),
        ("WEIR_KAFKA_BOOTSTRAPS", "WEIR_KAFKA_BOOTSTRAP"),
        ("WEIR_RUN_RESTOR", "WEIR_RUN_RESTORE"),
        ("WEIR_DEMO_RECORD", "WEIR_DEMO_RECORDS"),
        ("WEIR_COLOUR", None),
    ],
)
def test_a_variable_that_nothing_reads_is_refused_by_scripts_and_commands(
    variable: str, meant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "5")
    message = f"nothing reads the variable {variable}." + (f" Did you mean {meant}?" if meant else "")
    with pytest.raises(PipelineError, match=re.escape(f"{message} Correct it, or unset it")):
        Pipeline("job")
    for command in (("run", "orders.py"), ("status",), ("checkpoints", "ls", "/nowhere")):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2
        assert message in result.stderr


@given(st.sampled_from(OPTIONS), st.integers(5, 40), st.sampled_from(["delete", "double", "swap"]))
def test_a_slip_in_an_options_variable_is_refused_with_a_name_near_it(option: str, at: int, slip: str) -> None:
    at = 5 + at % (len(option) - 5)
    head, letter, tail = option[:at], option[at], option[at + 1 :]
    wrong = {
        "delete": head + tail,
        "double": head + letter * 2 + tail,
        "swap": head + tail[:1] + letter + tail[1:],
    }[slip]
    if wrong not in OPTIONS:
        with pytest.raises(PipelineError, match=rf"nothing reads the variable {wrong}\. Did you mean WEIR_"):
            from_environment({wrong: "5"})


def test_variables_for_other_things_are_no_options() -> None:
    others = ["WEIR_RUN_RESTORE", "WEIR_KAFKA_BOOTSTRAP", "WEIR_CACHE", "WEIR_CONFIG", "WEIR_CHECKPOINTS_GC_DRY_RUN"]
    assert from_environment(dict.fromkeys(others, "x")) == Settings()
    assert from_environment({"WEIRD": "x", "PATH": "x"}) == Settings()


def test_kubernetes_variables_of_a_service_called_weir_are_nobodys_mistake() -> None:
    for service in ("WEIR", "WEIR_UI"):
        link = {
            f"{service}_SERVICE_HOST": "10.0.0.1",
            f"{service}_SERVICE_PORT": "80",
            f"{service}_SERVICE_PORT_HTTP": "80",
            f"{service}_PORT": "tcp://10.0.0.1:80",
            f"{service}_PORT_80_TCP": "tcp://10.0.0.1:80",
            f"{service}_PORT_80_TCP_ADDR": "10.0.0.1",
        }
        assert from_environment(link) == Settings()
        with pytest.raises(PipelineError):
            from_environment({name: value for name, value in link.items() if not name.endswith("HOST")})


def test_a_slip_in_a_file_or_an_assignment_names_what_is_near(tmp_path: Path) -> None:
    path = tmp_path / "weir.toml"
    path.write_text("paralelism = 3")
    with pytest.raises(PipelineError, match=r"no option 'paralelism'; .*Did you mean parallelism\?"):
        settings.from_file(path)
    path.write_text("[checkpoint]\ninterval = 3")
    with pytest.raises(PipelineError, match=r"no option 'checkpoint'; .*Did you mean checkpoints\?"):
        settings.from_file(path)
    with pytest.raises(PipelineError, match=r"Did you mean checkpoints.interval\?"):
        settings.parse(["checkpoint.interval=3"])


def test_every_variable_that_the_project_uses_is_known() -> None:
    """Those in quotes or after a dollar, wherever something could read them; and all that the texts name."""
    found: dict[str, str] = {}
    for folder in ("pipeline", "sources", "sinks", "formats", "checkpoint", "examples", "docker", "tests/support"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found |= dict.fromkeys(re.findall(r"""["'{$](WEIR_[A-Z_]*[A-Z])\b""", path.read_text()), str(path))
    for path in (ROOT / "README.md", ROOT / "compose.yaml", *(ROOT / "docs").glob("*.md")):
        found |= dict.fromkeys(re.findall(r"\bWEIR_[A-Z_]*[A-Z]\b", path.read_text()), str(path))
    assert {"WEIR_CACHE", "WEIR_KAFKA_IMAGE", "WEIR_CONFIG", "WEIR_STATE_DIR"} <= found.keys()
    for name, path in found.items():
        try:
            from_environment({name: "1"})
        except PipelineError as error:
            pytest.fail(f"{path}: {error}")
