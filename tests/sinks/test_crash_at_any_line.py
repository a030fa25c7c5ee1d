"""A process that is killed at any line on the way of a record, from the writer until it is committed, and replaced by
another one, of the same or of another parallelism: everything is committed once, in order.

Which lines are tried is chosen at random (WEIR_STRESS_SEED repeats a choice); `make stress` tries each one.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka_job import count_open
from killed_job import EPOCH, Attempts, KilledJob
from line_killer import Line

from pipeline.testing import KafkaBroker
from sinks import FileSink, KafkaSink

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
EPOCHS = 4
SAMPLE = {"kafka": 5, "files": 20}
"""How many lines are tried where not all are."""

Records = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Subject:
    """A sink, and what is to be seen of it."""

    kind: str
    job: KilledJob
    visible: Callable[[], list[Records]]
    """Each of them in an order of its own."""
    left_open: Callable[[], int]

    def check(self) -> None:
        found = self.visible()
        assert sorted(record["id"] for part in found for record in part) == list(range(EPOCHS * EPOCH))
        for part in found:
            by_key = defaultdict(list)
            for record in part:
                by_key[record["key"]].append(record["id"])
            for ids in by_key.values():
                assert ids == sorted(ids)
        assert not self.left_open()


MakeSubject = Callable[[], Subject]


@pytest.fixture(params=["kafka", "files"])
def make_subject(
    request: pytest.FixtureRequest, kafka: KafkaBroker, make_topic: Callable[..., str], tmp_path: Path
) -> MakeSubject:
    made = 0

    def make() -> Subject:
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        if request.param == "files":
            target = folder / "out"
            files = FileSink(target.as_uri(), format="jsonl", roll_bytes=200)
            return Subject(request.param, KilledJob(files, folder, EPOCHS), lambda: parts_of(target), lambda: 0)
        topic = make_topic("killed", partitions=2)
        sink = KafkaSink(
            kafka.bootstrap_servers,
            topic=topic,
            key="key",
            transactional_id_prefix=topic,
            max_transaction_bytes=1000,  # less than an epoch
        )
        return Subject(
            request.param,
            KilledJob(sink, folder, EPOCHS),
            lambda: partitions_of(kafka, topic),
            lambda: count_open(kafka, topic),
        )

    return make


def parts_of(folder: Path) -> list[Records]:
    return [[json.loads(line) for line in part.read_text().splitlines()] for part in folder.glob("part-*")]


def partitions_of(broker: KafkaBroker, topic: str) -> list[Records]:
    partitions = defaultdict(list)
    for one in broker.consume(topic):
        partitions[one.partition].append(one.json())
    return list(partitions.values())


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    with Attempts() as made:
        yield made


def test_a_process_may_be_killed_at_a_line_and_the_next_ones_too(make_subject: MakeSubject, attempts: Attempts) -> None:
    subject, chance = make_subject(), random.Random(SEED)
    lines = undisturbed(subject, attempts)
    for victim in chance.sample(sorted(lines), SAMPLE[subject.kind]):
        strike(make_subject(), attempts, victim, lines[victim], chance)


@pytest.mark.stress
@pytest.mark.timeout(7200)
def test_a_process_may_be_killed_at_every_line(make_subject: MakeSubject, attempts: Attempts) -> None:
    lines = undisturbed(make_subject(), attempts)
    chance = random.Random(SEED)
    for victim in sorted(lines):
        strike(make_subject(), attempts, victim, lines[victim], chance)


def undisturbed(subject: Subject, attempts: Attempts) -> dict[Line, int]:
    """How often each line is run."""
    print(f"WEIR_STRESS_SEED={SEED}")
    assert attempts.run(subject.job, 2)
    subject.check()
    return subject.job.lines


def strike(subject: Subject, attempts: Attempts, victim: Line, times: int, chance: random.Random) -> None:
    """Kill an attempt at the line, the next one too if it comes there, and look at what the last one leaves."""
    runs, parallelisms = [chance.randint(1, times) for _ in range(2)], chance.choices([1, 2, 3], k=3)
    print(f"{victim}, at runs {runs} of about {times}, parallelisms {parallelisms}")
    killed = not attempts.run(subject.job, parallelisms[0], victim, runs[0])
    if killed:
        attempts.run(subject.job, parallelisms[1], victim, runs[1])
    assert attempts.run(subject.job, parallelisms[2])
    subject.check()
