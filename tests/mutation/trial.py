"""A mutant on trial: the tests of its module in a copy of the project, until one fails."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mutants import Mutant

_SIMULATION = "tests/simulation"
_WHAT_THE_SIMULATION_RUNS = """
import sys
from jobs import faults
from jobs.simulation import Simulation

for seed in range(30):
    Simulation(seed).run()
print(*filter(None, (getattr(module, "__file__", None) for module in sys.modules.values())), sep="\\n")
"""
_RUNTIME = "pipeline/runtime"
_WHOLE_JOBS = "test_*_without_spark.py"
"""Of the tests of the runtime: those that run its processes as threads."""
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
_TAKES_SPARK = re.compile(r"\bspark: (Any|SparkSession)\b")
"""The fixture, by which such tests elsewhere are known."""
_PATIENCE = 900.0
"""Seconds that a group of tests may take."""
_HANGS = 120.0
"""Seconds that a test may take that says nothing else."""


_MOST_IMPORTERS = 8
"""If more modules import one, their tests take too long for each mutant, and look at other things."""


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught_by: str | None
    """The test that failed, or the tests that didn't end; `None`: the mutant survives."""
    seconds: float
    diff: str


@dataclass(frozen=True)
class _Failure:
    name: str
    tests: tuple[str, ...]
    """The files that it is in."""


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
        self._said = copy.with_name(f"{copy.name}.out")
        """What the tests print that run, or ran last."""
        self._healthy: set[str] = set()
        """Names of failures that there are not without a change."""
        self.left_out: set[str] = set()
        """Tests that fail without a change, too: they say nothing."""
        self._forks: subprocess.Popen[str] | None = None
        """Runs pytest, as `forks.py` says."""
        self._running: int | None = None
        """The process group of the tests that run."""

    def try_out(self, mutant: Mutant) -> Outcome:
        started = time.monotonic()
        path = self._root / mutant.module
        original, changed = path.read_text(), mutant.code(self._root)
        caught_by = None
        for tests in nearest_tests(self._root, mutant.module):
            if tests[0].startswith(_SIMULATION) and path not in self._simulated:
                continue
            while (failure := self._failure_with(path, original, changed, tests)) and not self._is_healthy(failure):
                self.left_out.add(failure.name)
                if "::" not in failure.name:  # which of the tests it is isn't known, so that none of them says anything
                    failure = None
                    break
            if failure is not None:
                caught_by = failure.name
                break
        return Outcome(mutant, caught_by, time.monotonic() - started, mutant.diff(self._root))

    def close(self) -> None:
        """End the tests that run."""
        if self._running is not None:
            _end_group(self._running)
        if self._forks is not None:
            self._forks.kill()
            self._forks.wait()

    @cached_property
    def _simulated(self) -> set[Path]:
        """Files that the simulation imports: changes of others can't be seen there."""
        environment = {**self._environment, "PYTHONPATH": os.pathsep.join((str(self._root), _SIMULATION))}
        command = [sys.executable, "-c", _WHAT_THE_SIMULATION_RUNS]
        done = subprocess.run(command, cwd=self._root, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return set(map(Path, done.stdout.splitlines()))

    def _failure_with(self, path: Path, original: str, changed: str, tests: tuple[str, ...]) -> _Failure | None:
        try:
            _write(path, changed)
            return self._failure(tests, _PATIENCE)
        finally:
            _write(path, original)

    def _is_healthy(self, failure: _Failure) -> bool:
        """Whether it passes without a change, and far from as late as it may."""
        if failure.name in self._healthy:
            return True
        # A test can't always be run by its name: a parameter may have any text.
        for tests in (failure.name,), failure.tests:
            found = self._failure(tests, _PATIENCE / 2)
            if found is None:
                self._healthy.add(failure.name)
                return True
        return False

    def _failure(self, tests: tuple[str, ...], patience: float) -> _Failure | None:
        """The first test that fails, or that they don't end in so many seconds; `None`: all pass."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={_HANGS:g}"]
        options += [f"--deselect={name}" for name in sorted(self.left_out) if "::" in name]
        code = self._run_pytest(*options, *tests, patience=patience)
        if code is None:
            return _Failure(f"{' '.join(tests)}, not over after {patience:.0f} s", tests)
        if code in (0, 5):  # 5: no test is left by the markers
            return None
        for line in self._said.read_text(errors="replace").splitlines():
            if line.startswith(("FAILED tests/", "ERROR tests/")):
                name = line.split(" - ")[0].partition(" ")[2]
                return _Failure(name, (name.partition("::")[0],))
        return _Failure(f"{' '.join(tests)}, which ended with {code}", tests)

    def _run_pytest(self, *arguments: str, patience: float) -> int | None:
        """Its exit code; `None`: it has been ended after so many seconds."""
        if self._forks is None:
            self._forks = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("forks.py"))],
                cwd=self._root,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        requests, answers = self._forks.stdin, self._forks.stdout
        assert requests is not None
        assert answers is not None
        print(json.dumps([str(self._said), *arguments]), file=requests, flush=True)
        group = self._running = int(answers.readline())
        too_late = threading.Event()

        def end() -> None:
            too_late.set()
            _end_group(group)

        timer = threading.Timer(patience, end)
        timer.start()
        code = int(answers.readline())
        timer.cancel()
        _end_group(group)  # what the tests have left
        self._running = None
        return None if too_late.is_set() else code


def nearest_tests(root: Path, module: str) -> Iterator[tuple[str, ...]]:
    """Groups of tests for a module, the ones nearest to it first: those named after it, those that name it, the
    simulation, the others of its folder, those named after the modules that import it, and for the runtime whole jobs.
    No test comes twice."""
    path = Path(module)
    everything = [test for test in (root / "tests").rglob("test_*.py") if _without_spark(root, test)]

    def named_after(module: Path) -> list[Path]:
        folder = root / "tests" / module.parent
        return [test for test in everything if test.parent == folder and test.stem.startswith(f"test_{module.stem}")]

    importers = [each for each in _production(root) if _names(root / each, path)]
    groups = (
        named_after(path),
        [test for test in everything if _names(test, path)],
        list((root / _SIMULATION).glob("test_*.py")),
        [test for test in everything if test.parent == root / "tests" / path.parent],
        [test for each in importers for test in named_after(each)] if len(importers) <= _MOST_IMPORTERS else [],
        list((root / "tests" / _RUNTIME).glob(_WHOLE_JOBS)) if path.is_relative_to(_RUNTIME) else [],
    )
    seen: set[Path] = set()
    for group in groups:
        new = sorted(set(group) - seen)
        seen.update(new)
        if new:
            yield tuple(str(test.relative_to(root)) for test in new)


def _production(root: Path) -> Iterator[Path]:
    for place in sorted(root.iterdir()):
        if place.is_dir() and place.name != "tests" and not place.name.startswith("."):
            yield from (path.relative_to(root) for path in sorted(place.rglob("*.py")))


def _names(file: Path, module: Path) -> bool:
    """Whether it imports the module, or names it in full."""
    dotted = ".".join(module.with_suffix("").parts)
    text = file.read_text()
    return dotted in text or f"{'.'.join(module.parent.parts)} import {module.stem}" in text


def _without_spark(root: Path, test: Path) -> bool:
    parts = test.relative_to(root / "tests").parts
    return not set(parts) & set(_WITH_SPARK) and _TAKES_SPARK.search(test.read_text()) is None


def _write(path: Path, text: str) -> None:
    """Without a compiled file left that would be taken for the new text's: it goes by size and second."""
    path.write_text(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
