"""A mutant on trial: what catches it, and what lets it survive."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutants import mutants_of
from trial import Bench

_MODULE = """
def larger(a: int, b: int) -> int:
    return max(a, b)
"""
_TESTS = """
from room.part import larger

def test_the_larger_one() -> None:
    assert larger(1, 2) == 2
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    root = tmp_path / "project"
    for name, text in {
        "room/part.py": _MODULE,
        "tests/room/test_part.py": _TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=root, check=True)
    bench = Bench(root, tmp_path / "copy", {})
    yield bench
    bench.close()


def test_a_mutant_is_caught_by_a_test_that_fails_only_with_it(bench: Bench, tmp_path: Path) -> None:
    (swapped,) = mutants_of(tmp_path / "project", "room/part.py")
    outcome = bench.try_out(swapped)
    assert outcome.caught_by == "tests/room/test_part.py::test_the_larger_one"
    assert outcome.diff == "-    return max(a, b)\n+    return min(a, b)"
    tests = tmp_path / "copy" / "tests/room/test_part.py"
    tests.write_text("def test_broken() -> None:\n    assert False\n" + _TESTS)
    assert bench.try_out(swapped).caught_by == "tests/room/test_part.py::test_the_larger_one"
    assert bench.left_out == {"tests/room/test_part.py::test_broken"}
    for nothing in ("def test_nothing() -> None: ...\n", "what is no Python\n"):
        tests.write_text(nothing)
        assert bench.try_out(swapped).caught_by is None
    assert bench.left_out - {"tests/room/test_part.py::test_broken"}, "a file that can't be read is told of"
    assert (tmp_path / "copy" / "room/part.py").read_text() == _MODULE
