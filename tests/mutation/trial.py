"""A mutant on trial: the tests of its module in a copy of the project, until one fails."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutants import Mutant

_SIMULATION = ("tests/simulation",)
_WITH_SPARK = (
    "bench",
    "cli",
    "cluster",
    "docker",
    "examples",
    "kafka_e2e",
    "packaging",
    "pipelines",
    "mutation",
    "support",
)
"""Folders of tests/ whose tests run jobs, tools and containers: too slow to be run for each mutant."""
_SLACK = 30.0


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught_by: str | None
    """The tests that failed or didn't end; `None`: the mutant survives."""
    seconds: float


class Bench:
    """A copy of the project in which one mutant at a time is tried."""

    def __init__(self, root: Path, copy: Path, environment: dict[str, str]) -> None:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True).stdout.split(b"\0")
        for name in filter(None, map(os.fsdecode, files)):
            if (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        self._root = copy
        # The copy wins over the project that is installed.
        self._environment = {**os.environ, **environment, "PYTHONPATH": str(copy)}
        self._healthy: dict[tuple[str, ...], float] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def try_out(self, mutant: Mutant) -> Outcome:
        """
        Raises:
            RuntimeError: the tests fail without the change, too.
        """
        started = time.monotonic()
        path = self._root / mutant.module
        original, changed = path.read_text(), mutant.code(self._root)
        caught_by = None
        for tests in nearest_tests(self._root, mutant.module):
            patience = 3 * self._seconds_when_healthy(tests) + _SLACK
            try:
                _write(path, changed)
                passes = self._run(tests, patience)
            finally:
                _write(path, original)
            if not passes:
                caught_by = " ".join(tests)
                break
        return Outcome(mutant, caught_by, time.monotonic() - started)

    def close(self) -> None:
        """End the tests that run."""
        if self._process is not None:
            _end_group(self._process)

    def _seconds_when_healthy(self, tests: tuple[str, ...]) -> float:
        if tests not in self._healthy:
            started = time.monotonic()
            if not self._run(tests, 1800):
                raise RuntimeError(f"without any change these tests fail, so they say nothing: {' '.join(tests)}")
            self._healthy[tests] = time.monotonic() - started
        return self._healthy[tests]

    def _run(self, tests: tuple[str, ...], patience: float) -> bool:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
        process = self._process = subprocess.Popen(
            command,
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end_group(process)
        return code in (0, 5)  # 5: no test is left by the markers


def nearest_tests(root: Path, module: str) -> Iterator[tuple[str, ...]]:
    """Groups of tests for a module, the ones nearest to it first: those named after it, those that name it, the
    simulation, and the others of its folder. No test comes twice."""
    path = Path(module)
    folder = root / "tests" / path.parent
    everything = [test for test in (root / "tests").rglob("test_*.py") if _without_spark(root, test)]
    dotted = module.removesuffix(".py").replace("/", ".")
    name = f"{path.parent.as_posix().replace('/', '.')} import {path.stem}"
    groups = (
        [test for test in everything if test.parent == folder and test.stem.startswith(f"test_{path.stem}")],
        [test for test in everything if dotted in (text := test.read_text()) or name in text],
        [test for each in _SIMULATION for test in sorted((root / each).glob("test_*.py"))],
        [test for test in everything if test.parent == folder],
    )
    seen: set[Path] = set()
    for group in groups:
        new = sorted(set(group) - seen)
        seen.update(new)
        if new:
            yield tuple(str(test.relative_to(root)) for test in new)


def _without_spark(root: Path, test: Path) -> bool:
    parts = test.relative_to(root / "tests").parts
    return not set(parts) & set(_WITH_SPARK)


def _write(path: Path, text: str) -> None:
    """Without a compiled file left that would be taken for the new text's: it goes by size and second."""
    path.write_text(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()
