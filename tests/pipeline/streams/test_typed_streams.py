"""Type checkers follow records through a user's pipeline, and complain where it is wrong, and nowhere else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest

from pipeline import KeyedOperator, Operator, ValueState
from pipeline.testing import OperatorHarness
from sources.source import Source, SourceContext, SourceReader, T

V = TypeVar("V")
SAMPLE = Path(__file__).with_name("typed_sample.py")
ROOT = Path(__file__).parents[3]


def marked() -> list[int]:
    """The lines that are wrong."""
    return [i for i, line in enumerate(SAMPLE.read_text().splitlines(), 1) if line.endswith("# error")]


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_mypy_follows_the_records(tmp_path: Path) -> None:
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--python-version=3.11"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path), str(SAMPLE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = {int(line) for line in re.findall(r"^[^:]+:(\d+): error:", done.stdout, re.MULTILINE)}
    assert sorted(found) == marked(), done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_follows_the_records() -> None:
    checker = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if checker is None:
        pytest.skip("there is no pyright here; pip install basedpyright brings one, 280 MB with its Node.js")
    done = subprocess.run(
        [checker, "--pythonpath", sys.executable, "--outputjson", str(SAMPLE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    problems = json.loads(done.stdout)["generalDiagnostics"]
    found = {one["range"]["start"]["line"] + 1 for one in problems if one["severity"] == "error"}
    assert sorted(found) == marked(), problems


def test_at_run_time_types_are_names_only() -> None:
    class Typed(KeyedOperator[int, int]):
        total = ValueState(default=0)

        def process(self, value: int, ctx: object) -> list[int]:
            self.total.value += value
            return [self.total.value]

    harness = OperatorHarness(Typed())
    assert [harness.process(i, key="k") for i in (1, 2)] == [[1], [3]]
    assert issubclass(Typed, Operator)


def test_types_may_be_left_out_and_a_class_may_have_its_own() -> None:
    class Pairs(KeyedOperator[V, tuple[V, V]]):
        def process(self, value: V, ctx: object) -> list[tuple[V, V]]:
            return [(value, value)]

    for kind in (Pairs[int], Pairs, Operator[int], Operator[int, str], Operator[int, str, bytes]):
        assert issubclass(getattr(kind, "__origin__", kind), Operator)
    assert OperatorHarness(Pairs[int]()).process(1, key="k") == [(1, 1)]
    with pytest.raises(TypeError, match="Too many"):
        Operator[int, int, int, int]


def test_the_type_that_a_source_is_made_with_is_no_setting_of_it() -> None:
    class Items(Source[T]):
        def __init__(self, n: int) -> None:
            self.n = n

        def create_reader(self, ctx: SourceContext) -> SourceReader:
            raise NotImplementedError

    assert dict(Items[str](5).start_settings()) == dict(Items(5).start_settings()) == {"n": 5}
