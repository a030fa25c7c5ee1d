"""Chaos (`make stress`): one job, Kafka → keyed state → Kafka, under a load that never pauses. At random moments its
workers and its driver are killed, the broker is killed, frozen or restarted, and the job is stopped with or without a
savepoint and started at another parallelism. A reader with `read_committed` looks at every record all the while.

WEIR_STRESS_MINUTES sets the length (30); WEIR_STRESS_SEED repeats the choices of a run (not the timing of processes);
WEIR_STRESS_BROKERS=3 runs it on a cluster, of which one broker at a time is struck.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest
from chaos_driver import ASK_TIMEOUT, Answer, ChaosDriver, Settings
from confluent_kafka import KafkaError, Message, Producer
from deadlines import eventually
from kafka_job import EXACT, KEYS, MAGIC, Stage, count_open, record
from kafka_reader import CommittedReader
from rounds_driver import Status, await_none_left

from checkpoint.storage.storage import CheckpointStorage
from pipeline.broker import NativeBroker
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka_cluster import KafkaCluster

SEED = int(os.environ.get("WEIR_STRESS_SEED", random.SystemRandom().randrange(2**32)))
MINUTES = float(os.environ.get("WEIR_STRESS_MINUTES", 30))
BROKERS = int(os.environ.get("WEIR_STRESS_BROKERS", 1))
PATIENCE = 240.0
"""Seconds within which a job that nobody disturbs runs, and its output has come up with its input."""
LONGEST_READ = 5.0
"""Seconds."""
PER_SECOND = 200
"""Records of input."""
PARTITIONS = 4
NEVER = (
    "OutputAhead",
    "EarlierOutput",
    "MarkerLost",
    "ForeignMarker",
    "DataLoss",
    "DamagedFile",
    "RecordRefused",
    "CommitRefused",
    "AssertionError",
    "NotEnoughSlots",
)
"""What no failure may be: none of what happens here is a reason for it."""


class Feeder:
    """Writes the input, steadily, whatever happens to the broker."""

    def __init__(self, stage: Stage) -> None:
        self.written = 0
        """Acknowledged records; those with the ids below are."""
        self._stage = stage
        self._errors: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> int:
        """Stop, and return how many records were written."""
        self._stop.set()
        self._thread.join()
        assert not self._errors, self._errors[0]
        return self.written

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._stage.broker.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        id = 0
        started = time.monotonic()
        while not self._stop.wait(0.05) and not self._errors:
            due = int((time.monotonic() - started) * PER_SECOND)
            if len(producer) > 20_000:  # the broker is away
                started += 0.05
                producer.poll(0)
                continue
            for value in map(record, range(id, due)):
                producer.produce(
                    self._stage.source_topic,
                    orjson.dumps(value),
                    value["key"],
                    partition=self._stage.partition_of(value),
                    on_delivery=self._delivered,
                )
            id = max(id, due)
            producer.poll(0)
        producer.flush(PATIENCE)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self._errors.append(error)


class Output:
    """What a reader sees: each record must be the next one of its key."""

    def __init__(self, stage: Stage) -> None:
        self.seen = 0
        self._reader = CommittedReader(stage.broker, stage.out_topic)
        self._numbers: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self._partitions: dict[str, int] = {}

    def read(self, timeout: float = 0.5) -> None:
        """Look at what has come.

        Raises:
            AssertionError: a record is lost, doubled, out of order or corrupted.
        """
        before = -1
        until = time.monotonic() + LONGEST_READ  # it may never pause
        while before < len(self._reader.records) and time.monotonic() < until:
            before = len(self._reader.records)
            self._reader.read(before + 1, timeout)
        records, self._reader.records = self._reader.records, []
        for one in records:
            value = one.json()
            key = value["key"]
            number = self._numbers[key]
            wanted = record(int(key[1:]) + KEYS * number)
            total = self._totals[key] + wanted["amount"]
            assert value == {**wanted, "magic": MAGIC, "number": number + 1, "total": total}, (
                f"record {number + 1} of {key} should have id {wanted['id']} and total {total}; "
                f"partition {one.partition}, offset {one.offset} has {value}"
            )
            assert self._partitions.setdefault(key, one.partition) == one.partition
            self._numbers[key], self._totals[key] = number + 1, total
        self.seen += len(records)

    def close(self) -> None:
        self._reader.close()


class Chaos:
    def __init__(self, stage: Stage, folder: Path, node: NativeBroker, rng: random.Random) -> None:
        self.stage, self.folder, self.node, self.rng = stage, folder, node, rng
        self.feeder, self.output = Feeder(stage), Output(stage)
        self.driver: ChaosDriver | None = None
        self.settings: Settings | None = None
        """Settings of the newest start, while the job runs."""
        self.starts = 0
        self.disturbances = 0
        """Since the newest start: what may have made it fail."""
        self.savepoints = 0
        self.moved: Path | None = None
        """A savepoint that the job was stopped with and that is elsewhere now."""

    # -- the job ----------------------------------------------------------------------------------------------------

    def ensure_running(self) -> None:
        """Start a driver and the job, unless they run."""
        rng = self.rng
        if self.driver is None:
            self.driver = ChaosDriver(self.stage, self.folder)
        if self.settings is None:
            self.settings = Settings(
                number=self.starts,
                parallelism=rng.choice([1, 2, 3]),
                alignment=rng.choice(["unaligned", "unaligned", "aligned", 0.001, 0.05]),
                max_concurrent=rng.choice([1, 2, 3]),
                interval=rng.choice([0.1, 0.3, 1.0]),
                max_transaction_bytes=rng.choice([16384, 64 * 2**20, 64 * 2**20]),
                restarts=rng.choice([0, 2, 1000, 1000, 1000]),
                restore=self._where_to_restore(),
            )
            self.driver.run(self.settings)  # type: ignore[arg-type]  # settings of its own
            self.starts += 1
            self.disturbances = 0

    def _where_to_restore(self) -> str:
        """As whoever has moved the savepoint would say it: that one, until the job has a checkpoint after it."""
        if self.moved is not None:
            taken = CheckpointStorage(self.moved.as_uri(), None).load_savepoint().id
            own = CheckpointStorage(self.stage.folder.as_uri(), self.stage.name).list_checkpoints()
            if all(ref.id <= taken for ref in own):
                return self.moved.as_uri()
            self.moved = None
        return "latest"

    def status(self) -> Status | None:
        """Status of the newest start; `None` before it says something, and once it has ended."""
        assert self.driver is not None
        status = self.driver.status()
        if self.settings is None or status.number != self.settings.number:
            return None
        failure = status.failure or ""
        assert not any(never in failure for never in NEVER), failure
        if status.ended is not None:
            assert status.ended == "finished" or self.disturbances, f"it ended for no reason: {status}"
            print(f"  ended ({status.ended}): {failure[-300:]!r}", flush=True)
            self.settings = None
            return None
        return status

    def await_running(self) -> Status:
        """Until all of the job runs; starts it again whenever it has ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.ensure_running()
            status = self.status()
            if status is not None and status.running and status.pids:
                return status
            assert time.monotonic() < deadline, f"it does not run: {status}"
            time.sleep(0.02)

    def catch_up(self) -> None:
        """Until all input that is written by now has come out."""
        wanted = self.feeder.written
        deadline = time.monotonic() + PATIENCE
        while self.output.seen < wanted:
            self.ensure_running()
            self.status()
            self.output.read()
            assert time.monotonic() < deadline, (
                f"{self.output.seen} of {wanted} records are out, {self.driver and self.driver.status()}"
            )

    # -- what happens to it -----------------------------------------------------------------------------------------

    def kill_workers(self) -> str:
        status = self.status()
        if status is None or not status.pids:
            return "nobody there to kill"
        victims = self.rng.sample(sorted(status.pids), min(len(status.pids), self.rng.choice([1, 1, 1, 2, 3])))
        self.disturbances += 1
        for victim in victims:
            try:
                os.kill(status.pids[victim], signal.SIGKILL)
            except ProcessLookupError:
                pass  # an earlier failure has ended the attempt meanwhile
        return f"{', '.join(victims)} killed"

    def kill_driver(self) -> str:
        assert self.driver is not None
        self.driver.kill()
        self.driver = self.settings = None
        return "driver killed"

    def strike_broker(self) -> str:
        self.disturbances += 1
        how = self.rng.choice(["killed", "restarted", "frozen"])
        away = self.rng.choice([0.0, 1.0, 4.0, 8.0])
        if how == "killed":
            self.node.kill()
        elif how == "frozen":
            self.node.pause()
        also = ""
        time.sleep(away * self.rng.random() / 2)
        if how != "restarted" and self.rng.random() < 0.4:
            also = f", {self.rng.choice([self.kill_workers, self.kill_driver])()} meanwhile"
        if how != "restarted":
            time.sleep(away / 2)
        if how == "frozen":
            self.node.resume()
        else:
            self.node.restart()
        return f"broker {how} for {away:g} s{also}"

    def take_savepoint(self) -> str:
        assert self.driver is not None
        if self.settings is None:
            return "no job for a savepoint"
        question = self.driver.ask("savepoint", self._next_savepoint())
        return f"savepoint: {self._disturbed_answer(question)}"

    def stop(self) -> str:
        """Stop the job; with a savepoint this may be moved, and the job then starts from there."""
        assert self.driver is not None
        if self.settings is None:
            return "no job to stop"
        where = self._next_savepoint() if self.rng.random() < 0.6 else None
        number = self.settings.number
        question = self.driver.ask("stop", where)
        told = self._disturbed_answer(question)
        if told == "done":
            eventually(lambda: self._has_ended(number))
            self.settings = None
            if where is not None and self.rng.random() < 0.6:
                self.moved = where.rename(f"{where}-moved")
                told = "done, moved"
        return f"stop{'' if where is None else ' with a savepoint'}: {told}"

    def _has_ended(self, number: int) -> bool:
        assert self.driver is not None
        status = self.driver.status()
        return status.number == number and status.ended == "finished"

    def _disturbed_answer(self, question: int) -> str:
        """Sometimes workers are killed before it comes; failing is all right then."""
        assert self.driver is not None
        disturbed = ""
        if self.rng.random() < 0.3:
            time.sleep(self.rng.uniform(0, 0.3))
            disturbed = self.kill_workers()
        found: list[Answer] = []
        deadline = time.monotonic() + ASK_TIMEOUT + 30
        while not found:
            assert time.monotonic() < deadline, "no answer"
            if (answer := self.driver.answer(question)) is not None:
                found.append(answer)
            time.sleep(0.02)
        error = found[0].error
        if error is None:
            return "done"
        assert not any(never in error for never in NEVER), error
        assert disturbed or self.disturbances, error
        return f"{disturbed}, {error[:120]}"

    def _next_savepoint(self) -> Path:
        self.savepoints += 1
        return self.folder / f"savepoint-{self.savepoints}"

    def play(self) -> str:
        """One round: something happens; what, in words."""
        rng = self.rng
        self.ensure_running()
        settled = rng.random() < 0.65
        if settled:
            self.await_running()
        moment = rng.uniform(0, 2.0)
        time.sleep(moment)
        step = rng.choice(
            [self.kill_workers] * 5
            + [self.kill_driver] * 2
            + [self.strike_broker] * 4
            + [self.take_savepoint]
            + [self.stop] * 3
        )
        how = self.settings
        what = step()
        return f"{what}; {moment:.2f} s after {'all ran' if settled else 'the last'}; {how and asdict(how)}"

    def finish(self) -> None:
        """Let the input end, and see that all of it is out, once."""
        written = self.feeder.finish()
        self.catch_up()
        self.await_running()
        assert self.driver is not None
        question = self.driver.ask("stop")
        eventually(lambda: self.driver is not None and self.driver.answer(question) is not None)
        self.settings = None
        self.driver.end()
        self.driver = None
        self.stage.inputs = [record(id) for id in range(written)]
        eventually(lambda: count_open(self.stage.broker, self.stage.out_topic) == 0)
        assert self.stage.findings() == EXACT

    def close(self) -> None:
        self.feeder._stop.set()
        self.output.close()
        if self.driver is not None:
            self.driver.kill()
        await_none_left(self.stage.name)


@pytest.fixture
def broker() -> Iterator[tuple[KafkaBroker, NativeBroker]]:
    """What the job is given, and the broker that is struck."""
    if BROKERS > 1:
        with KafkaCluster.start(nodes=BROKERS) as cluster:
            yield cluster, cluster._cluster.nodes[1]
    else:
        with NativeBroker.start() as native:
            yield KafkaBroker("native", native), native


@pytest.mark.stress
@pytest.mark.timeout(int(MINUTES * 60) + 1800)
def test_whatever_happens_a_reader_finds_every_record_once_and_in_order(
    broker: tuple[KafkaBroker, NativeBroker], tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    print(f"WEIR_STRESS_SEED={SEED} WEIR_STRESS_MINUTES={MINUTES:g} WEIR_STRESS_BROKERS={BROKERS}", flush=True)
    stage = Stage(broker[0], unique_name("chaos")[-30:], unique_name("in"), unique_name("out"), tmp_path / "chk")
    stage.create_topics(PARTITIONS)
    chaos = Chaos(stage, tmp_path, broker[1], random.Random(SEED))
    number, until = 0, time.monotonic() + 60 * MINUTES
    try:
        while time.monotonic() < until:
            number += 1
            print(f"round {number}: {chaos.play()}; {chaos.output.seen} records are out", flush=True)
            chaos.output.read(0.1)
            if chaos.rng.random() < 0.3:
                chaos.catch_up()
        chaos.finish()
        assert chaos.output.seen > PER_SECOND * 60 * MINUTES / 4
    except BaseException:
        print(f"round {number} of WEIR_STRESS_SEED={SEED} failed", flush=True)
        raise
    finally:
        chaos.close()
