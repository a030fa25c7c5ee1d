"""Options from outside: what wins over what, and what is said of an option that isn't there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from checkpoint.config import CheckpointConfig
from pipeline import Autoscale, BufferConfig, Pipeline, PipelineError, RestartStrategy, settings
from pipeline.settings import Settings, from_environment, from_file, overriding, parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weir.toml"
    path.write_text(
        """
        parallelism = 3
        max_parallelism = 64
        show_keys = false
        [checkpoints]
        uri = "/var/lib/weir"
        interval = 5
        alignment = "aligned"
        [buffers]
        target = 0.5
        [restart]
        strategy = "exponential"
        initial = 0.2
        attempts = 7
        [autoscale]
        most = 6
        window = 30
        """
    )
    return path


# -- where values come from -------------------------------------------------------------------------------------------


def test_whether_keys_are_shown_is_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Pipeline("job").show_keys
    monkeypatch.setenv("WEIR_SHOW_KEYS", "no")
    with pytest.raises(PipelineError, match=r"show_keys must be true or false, not 'no' \(from WEIR_SHOW_KEYS\)"):
        Pipeline("job")


def test_a_file_sets_every_kind_of_option(file: Path) -> None:
    with overriding(Settings(), file):
        p = Pipeline("job")
    assert (p.parallelism, p.max_parallelism, p.show_keys) == (3, 64, False)
    assert p.checkpoints == CheckpointConfig("/var/lib/weir", interval=5, alignment="aligned")
    assert p.buffers == BufferConfig(target=0.5)
    assert p.restart == RestartStrategy.exponential(initial=0.2, attempts=7)
    assert p.autoscale == Autoscale(most=6, window=30)


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism", "most", "message"),
    [
        (1, 128, "8", r"parallelism is 1, and autoscale goes from 2 to 8 \(from WEIR_AUTOSCALE_MOST\): begin within"),
        (9, 128, "8", r"parallelism is 9, and autoscale goes from 2 to 8"),
        (2, 4, "8", r"autoscale.most is 8 \(from WEIR_AUTOSCALE_MOST\), and a step has at most max_parallelism = 4"),
        (2, 128, "1", r"autoscale \(from WEIR_AUTOSCALE_MOST\): least \(2\) must not be above most \(1\)"),
    ],
)
def test_a_pipeline_begins_within_the_bounds_of_autoscale(
    parallelism: int, max_parallelism: int, most: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Autoscale(most=6, least=2)
    assert Pipeline("job", 3, autoscale=own).autoscale == own
    monkeypatch.setenv("WEIR_AUTOSCALE_MOST", most)
    with pytest.raises(PipelineError, match=message):
        Pipeline("job", parallelism, max_parallelism, autoscale=own)


def test_variables_set_every_kind_of_option_of_any_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, text in {
        "WEIR_PARALLELISM": "4",
        "WEIR_MAX_PARALLELISM": "32",
        "WEIR_CHECKPOINTS_URI": "/var/lib/weir",
        "WEIR_CHECKPOINTS_RETAIN_ON_CANCEL": "False",
        "WEIR_BUFFERS_DEBLOAT": "false",
        "WEIR_RESTART_ATTEMPTS": "9",
    }.items():
        monkeypatch.setenv(variable, text)
    p = Pipeline("job")
    assert (p.parallelism, p.max_parallelism) == (4, 32)
    assert p.checkpoints == CheckpointConfig("/var/lib/weir", retain_on_cancel=False)
    assert p.buffers == BufferConfig(debloat=False)
    assert p.restart == RestartStrategy.fixed_delay(attempts=9)


def test_a_variable_can_name_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    assert Pipeline("job").parallelism == 3


def test_a_file_that_a_command_names_is_read_instead_of_the_variables(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CONFIG", str(tmp_path / "missing.toml"))
    with overriding(Settings(), file):
        assert Pipeline("job").parallelism == 3


def test_the_command_line_wins_over_variables_over_the_file_over_the_script(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CHECKPOINTS_INTERVAL", "6")
    monkeypatch.setenv("WEIR_CHECKPOINTS_TIMEOUT", "60")
    with overriding(parse(["checkpoints.interval=7"]), file):
        p = Pipeline("job", checkpoints=CheckpointConfig("/own", 1, timeout=10, min_pause=2))
    assert p.checkpoints == CheckpointConfig("/var/lib/weir", 7, timeout=60, min_pause=2, alignment="aligned")


def test_a_variable_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    monkeypatch.setenv("WEIR_PARALLELISM", "4")
    monkeypatch.setenv("WEIR_CHECKPOINTS_INTERVAL", "6")
    p = Pipeline("job")
    assert (p.parallelism, p.max_parallelism) == (4, 64)
    assert p.checkpoints == CheckpointConfig("/var/lib/weir", 6, alignment="aligned")


def test_an_empty_variable_counts_as_not_set() -> None:
    """Compose passes on `${UNSET:-}` like that."""
    assert from_environment({"WEIR_PARALLELISM": "", "WEIR_BUFFERS_TARGET": " "}) == Settings()


def test_a_value_is_json_or_else_text() -> None:
    given = parse(["checkpoints.alignment=2.5", "checkpoints.mode=at_least_once", "checkpoints.uri=s3://b/w?a=b"])
    assert [one.value for one in given.given.values()] == [2.5, "at_least_once", "s3://b/w?a=b"]


def test_without_any_option_the_scripts_own_objects_stay() -> None:
    restart = RestartStrategy.exponential()
    assert Pipeline("job", restart=restart).restart is restart


# -- restart strategies -----------------------------------------------------------------------------------------------


def test_an_option_changes_the_scripts_own_strategy() -> None:
    with overriding(parse(["restart.maximum=5"])):
        p = Pipeline("job", restart=RestartStrategy.exponential(initial=0.1, multiplier=3))
    assert p.restart == RestartStrategy.exponential(initial=0.1, maximum=5, multiplier=3)


def test_another_strategy_has_none_of_the_options_of_the_one_it_replaces(file: Path) -> None:
    with overriding(parse(["restart.strategy=fixed_delay", "restart.delay=2"]), file):
        assert Pipeline("job").restart == RestartStrategy.fixed_delay(delay=2)
    with overriding(parse(["restart.strategy=none"]), file):
        assert Pipeline("job", restart=RestartStrategy.exponential()).restart == RestartStrategy.none()


def test_the_same_strategy_keeps_the_weaker_options(file: Path) -> None:
    with overriding(parse(["restart.strategy=exponential", "restart.initial=1"]), file):
        assert Pipeline("job").restart == RestartStrategy.exponential(initial=1, attempts=7)


@pytest.mark.parametrize("kind", ["none", "fixed_delay", "exponential"])
def test_a_strategys_options_make_it_again(kind: str) -> None:
    from pipeline.runtime.driver.restart import STRATEGIES

    strategy = STRATEGIES[kind]()
    assert strategy.kind == kind
    assert STRATEGIES[kind](**strategy.options) == strategy


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[checkpoints]\nintervall = 5",
            r"weir.toml: there is no option 'checkpoints.intervall'; there are ",
        ),
        ("[checkpoint]\ninterval = 5", r"weir.toml: there is no option 'checkpoint'; there are parallelism"),
        ("checkpoints = 5", r"weir.toml: checkpoints must be a table of options, as in \[checkpoints\], not 5"),
        ("parallelism = =", r"weir.toml is no TOML: .*line 1"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "weir.toml"
    path.write_text(text)
    with pytest.raises(PipelineError, match=message):
        from_file(path)


def test_a_missing_file_is_an_error_that_says_who_names_it(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"cannot read the options in .*gone.toml: No such file.*WEIR_CONFIG"):
        from_file(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("checkpoints.interval", "-1", r"checkpoints \(from WEIR_CHECKPOINTS_INTERVAL\): interval must be at least"),
        (
            "checkpoints.uri",
            "relative",
            r"checkpoints \(from WEIR_CHECKPOINTS_URI\): uri, the checkpoint folder, must be",
        ),
        ("buffers.linger", "x", r"buffers \(from WEIR_BUFFERS_LINGER\): linger must be seconds"),
        ("autoscale.most", "0", r"autoscale \(from WEIR_AUTOSCALE_MOST\): most must be a whole number of at least 1"),
        (
            "autoscale.window",
            "60",
            r"autoscale \(from WEIR_AUTOSCALE_WINDOW\): .* autoscale=Autoscale.*: autoscale.most=8",
        ),
        ("parallelism", "many", r"whole number from 1 to 32767, not 'many' \(from WEIR_PARALLELISM\)"),
        ("restart.attempts", "0", r"restart \(from WEIR_RESTART_ATTEMPTS\): attempts must be a whole number"),
        (
            "restart.jitter",
            "0",
            r"no option of the restart strategy fixed_delay, which has attempts, delay \(from",
        ),
        ("restart.strategy", "fast", r"must be one of none, fixed_delay, exponential, not 'fast' \(from WEIR_RESTART"),
    ],
)
def test_a_value_that_cannot_be_names_where_it_comes_from(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WEIR_{name.replace('.', '_').upper()}", value)
    with pytest.raises(PipelineError, match=message):
        Pipeline("job", checkpoints=CheckpointConfig("/own"))


def test_an_option_of_checkpoints_needs_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CHECKPOINTS_INTERVAL", "5")
    with pytest.raises(PipelineError, match=r"WEIR_CHECKPOINTS_INTERVAL.*name a folder, too: checkpoints.uri"):
        Pipeline("job")


def test_every_option_has_a_name_that_every_source_of_values_takes(tmp_path: Path) -> None:
    for name in settings.option_names():
        assert list(parse([f"{name}=1"]).given) == [name]
        assert list(from_environment({f"WEIR_{name.replace('.', '_').upper()}": "1"}).given) == [name]
        path = tmp_path / "one.toml"
        path.write_text(f"{name} = 1\n")
        assert list(from_file(path).given) == [name]


def test_the_documentations_file_is_accepted(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs" / "operations.md"
    path = tmp_path / "weir.toml"
    block = re.search(r"((?:    .*\n|\n)*    \[checkpoints\].*\n(?:    .*\n|\n)*)", docs.read_text())
    assert block is not None
    path.write_text(textwrap.dedent(block[1]))
    with overriding(Settings(), path):
        p = Pipeline("job")
    assert p.checkpoints == CheckpointConfig("s3://bucket/weir", interval=5)
    assert p.restart == RestartStrategy.exponential(initial=0.5, attempts=10)
    assert p.autoscale == Autoscale(most=8, least=1, pause=300, window=60)
