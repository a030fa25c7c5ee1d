"""Drivers that die, stall, or run twice, as real processes: the later owner goes on from the newest checkpoint, the
earlier one stops with an error that names it, and the output is exact.

WEIR_STRESS_SEED repeats the choice of moments (not the timing of processes).
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import pytest
import topology_driver
from deadlines import eventually
from topology import EXACT, Shape, validate

from checkpoint.storage import checksummed_json
from checkpoint.storage.storage import CheckpointStorage

Name = Callable[[str], str]

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
LEAVE = 45.0
"""Seconds in which a killed driver's JVM and workers have to end by themselves."""
matrix, full = pytest.mark.matrix, pytest.mark.full


class Job:
    """A topology with a folder of its own, and the drivers that run it."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name
        self.storage = CheckpointStorage((folder / "checkpoints").as_uri(), name)
        self.drivers: dict[str, subprocess.Popen[str]] = {}
        self.shape: Shape = "pipeline"
        self.checkpoints = 10
        self.options: dict[str, Any] = {"interval": 0.1, "max_concurrent": 3}

    def start(self, label: str, **arguments: Any) -> subprocess.Popen[str]:
        options = {**self.options, **arguments, "checkpoints": self.checkpoints, "label": label}
        driver = topology_driver.start(self.folder, self.name, self.shape, **options)
        self.drivers[label] = driver
        return driver

    @property
    def completed(self) -> int:
        return topology_driver.parts(self.folder, 0)[0].completed()

    def await_completed(self, more: int) -> None:
        """Until so many more checkpoints are complete than now."""
        wanted = self.completed + more
        eventually(lambda: self.completed >= wanted)

    def await_owner(self, label: str) -> None:
        """Until this driver owns the job and has completed a checkpoint."""
        eventually(lambda: self.owner() == self.drivers[label].pid)
        self.await_completed(1)

    def owner(self) -> int | None:
        """Process id of the driver that is the newest owner."""
        claims = self.storage.owners()
        content = self.storage.get(claims[-1].path) if claims else None
        return int(checksummed_json.loads(content)["pid"]) if content else None

    def await_left(self, label: str) -> None:
        """Until everything that the driver started has ended by itself."""
        eventually(lambda: not self._family(label), LEAVE)

    def kill(self, label: str) -> None:
        """End the driver as a crash would."""
        self.drivers[label].kill()
        self.drivers[label].wait()

    def stall(self, label: str, whole: bool) -> None:
        """Stop the driver, or all of its processes, as if it swapped or its host was suspended."""
        self._signal(label, whole, signal.SIGSTOP)

    def go_on(self, label: str, whole: bool) -> None:
        self._signal(label, whole, signal.SIGCONT)

    def _signal(self, label: str, whole: bool, sign: signal.Signals) -> None:
        for process in self._family(label) if whole else [psutil.Process(self.drivers[label].pid)]:
            process.send_signal(sign)

    def end(self, label: str) -> dict[str, Any]:
        return topology_driver.end(self.drivers[label])

    def assert_exact(self) -> None:
        schedule, sink = topology_driver.parts(self.folder, 0)
        assert validate(sink.records, schedule.emitted()) == EXACT

    def committed_by(self) -> list[str]:
        """Whose records were committed, in the order of the commits."""
        _, sink = topology_driver.parts(self.folder, 0)
        return [label for label, _ in groupby(record["by"] for record in sink.records)]

    def assert_stopped(self, label: str, by: str) -> None:
        """It ended with an error that says who has the job now."""
        said = self.end(label)
        assert said["status"] == "failed", said
        assert "newer owner" in said["failure"]
        assert f"process {self.drivers[by].pid}," in said["failure"]

    def clean_up(self) -> None:
        for label, driver in self.drivers.items():
            for process in self._family(label):
                process.send_signal(signal.SIGCONT)
            driver.kill()
            driver.wait()
        for label in self.drivers:
            self.await_left(label)

    def _family(self, label: str) -> list[psutil.Process]:
        return topology_driver.family(self.name, label)


@pytest.fixture
def job(tmp_path: Path, unique_name: Name) -> Iterator[Job]:
    job = Job(tmp_path, unique_name("job"))
    yield job
    job.clean_up()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    print(f"WEIR_STRESS_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def wait(rng: random.Random, least: float, most: float) -> None:
    seconds = rng.uniform(least, most)
    print(f"after another {seconds:.3f} s")
    time.sleep(seconds)


ROWS: list[tuple[Shape, str | float]] = [
    *((shape, alignment) for shape in ("multi-input", "union", "broadcast") for alignment in ("unaligned", "aligned")),
    ("pipeline", "aligned"),
    *((shape, 0.05) for shape in ("pipeline", "multi-input", "union", "broadcast")),
]


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "alignment"),
    [("pipeline", "unaligned"), *(pytest.param(*row, marks=full) for row in ROWS)],
)
def test_a_driver_killed_at_random_moments_leaves_the_output_exact(
    job: Job, rng: random.Random, shape: Shape, alignment: str | float
) -> None:
    job.shape, job.options["alignment"], job.checkpoints = shape, alignment, 20
    job.start("first")
    job.await_completed(rng.randint(1, 8))
    wait(rng, 0, 0.3)
    job.kill("first")
    job.start("second")  # while the first one's workers may still be on their way out
    wait(rng, 1, 6)  # it starts, restores or runs
    job.kill("second")
    for label in ("first", "second"):
        job.await_left(label)
    job.start("third")
    assert job.end("third") == {"status": "finished", "restarts": 0, "failure": None}
    job.assert_exact()


STEPS: tuple[tuple[Shape, str, int, int], ...] = (
    ("multi-input", "coordinator.before_metadata", 6, 2),
    ("pipeline", "coordinator.before_metadata", 1, 1),
    ("pipeline", "coordinator.after_metadata", 1, 1),
    ("union", "coordinator.after_metadata", 7, 2),
    ("broadcast", "coordinator.before_metadata", 5, 3),
    # A driver puts its owner file, the record of what it restored, and what workers must see.
    ("pipeline", "storage.put", 1, 2),
    ("pipeline", "storage.put", 2, 1),
    ("pipeline", "storage.put", 3, 3),
    # What a newer checkpoint or owner leaves without use.
    ("multi-input", "storage.delete", 2, 1),
    ("pipeline", "storage.delete", 6, 4),
)


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "step", "nth", "nth_of_second"), STEPS[:1] + tuple(pytest.param(*row, marks=full) for row in STEPS[1:])
)
def test_a_driver_killed_at_a_step_of_its_own_leaves_the_output_exact(
    job: Job, shape: Shape, step: str, nth: int, nth_of_second: int
) -> None:
    job.shape, job.checkpoints = shape, 20
    # Hits are counted on from the one driver to the next.
    for label, hit in (("first", nth), ("second", nth + nth_of_second)):
        killed = job.start(label, crash=step, nth=hit)
        job.end(label)
        assert killed.returncode == -signal.SIGKILL
        job.await_left(label)
    job.start("third")
    assert job.end("third") == {"status": "finished", "restarts": 0, "failure": None}
    job.assert_exact()


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    "shape", ["multi-input", *(pytest.param(s, marks=full) for s in ("pipeline", "union", "broadcast"))]
)
def test_of_two_drivers_started_at_once_after_a_crash_one_finishes_the_job(
    job: Job, rng: random.Random, shape: Shape
) -> None:
    job.shape, job.checkpoints = shape, 25
    job.start("first")
    job.await_completed(3)
    wait(rng, 0, 0.3)
    job.kill("first")
    both = ("second", "third")
    for label in both:
        job.start(label)
    said = {label: job.end(label) for label in both}
    (winner,) = (label for label in both if job.owner() == job.drivers[label].pid)
    (loser,) = {*both} - {winner}
    assert said[winner] == {"status": "finished", "restarts": 0, "failure": None}
    # Where the machine is slow, the one may have run to the end before the other claimed the job.
    if said[loser]["status"] != "finished":
        # Refused, or ended by the other's ownership if both came at the same moment.
        assert re.search(rf"process {job.drivers[winner].pid}\b", said[loser]["failure"])
    job.assert_exact()


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "alignment"),
    [
        ("pipeline", 0.05),
        pytest.param("multi-input", "unaligned", marks=matrix),
        pytest.param("union", "aligned", marks=full),
        pytest.param("broadcast", "unaligned", marks=full),
    ],
)
def test_a_driver_started_while_another_runs_takes_the_job_over(
    job: Job, rng: random.Random, shape: Shape, alignment: str | float
) -> None:
    job.shape, job.options["alignment"] = shape, alignment
    job.checkpoints = 10_000  # the earlier driver must not come to the end meanwhile
    job.start("earlier")
    job.await_completed(rng.randint(1, 4))
    wait(rng, 0, 0.3)
    job.checkpoints = 1
    job.start("later", take_over=True)
    job.assert_stopped("earlier", by="later")
    assert job.end("later") == {"status": "finished", "restarts": 0, "failure": None}
    job.assert_exact()
    assert job.committed_by() in (["earlier", "later"], ["earlier"])


@pytest.mark.sample(1 / 4)
@pytest.mark.parametrize(
    ("shape", "whole", "until_finished"),
    [
        ("multi-input", False, False),
        pytest.param("pipeline", False, True, marks=matrix),
        pytest.param("pipeline", True, False, marks=matrix),
        pytest.param("multi-input", True, True, marks=matrix),
        pytest.param("union", False, False, marks=full),
        pytest.param("broadcast", True, False, marks=full),
    ],
)
def test_a_driver_that_stalls_while_another_takes_the_job_over_stops_when_it_goes_on(
    job: Job, rng: random.Random, shape: Shape, whole: bool, until_finished: bool
) -> None:
    """`whole`: its JVM and workers stall, too, as on a suspended host."""
    job.shape = shape
    job.checkpoints = 10_000
    job.start("stalled")
    job.await_completed(rng.randint(1, 4))
    wait(rng, 0, 0.3)
    job.stall("stalled", whole)
    job.checkpoints = 1 if until_finished else job.completed + 40
    job.start("later", take_over=True)
    if until_finished:
        assert job.end("later")["status"] == "finished"
    else:
        job.await_owner("later")
        wait(rng, 0, 0.5)
    job.go_on("stalled", whole)
    job.assert_stopped("stalled", by="later")
    if not until_finished:
        assert job.end("later") == {"status": "finished", "restarts": 0, "failure": None}
    job.assert_exact()
    assert job.committed_by() in (["stalled", "later"], ["stalled"])
