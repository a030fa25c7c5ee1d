"""The job that end-to-end tests run, Kafka → keyed state → Kafka, and what a reader of its output must find.

Keys are dealt to partitions, so the records of a key have one order, and what must come out for each record is known:
its place among the records of its key, and their running sum.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from deadlines import eventually
from small_job import NEVER

from checkpoint.committables import Committable
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.storage import CheckpointStorage
from pipeline import BufferConfig, CheckpointConfig, KeyedOperator, Pipeline, RestartStrategy, ValueState
from pipeline.handle import JobHandle
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka import KafkaRecord
from sinks import KafkaSink, Sink, SinkBatch, SinkWriter, WriterContext
from sinks.kafka.segments import read_segment
from sources import KafkaSource, Source

MAGIC = 0x77EB1DEA
KEYS = 20
Record = dict[str, Any]


def check(record: Record) -> Record:
    """Each hop: corruption is seen where it happens."""
    if record.get("magic") != MAGIC:
        raise AssertionError(f"corrupted record {record!r}")
    return record


def record(id: int) -> Record:
    return {"id": id, "key": f"k{id % KEYS}", "amount": id * 7919 % 101, "magic": MAGIC}


def records(n: int, first: int = 0) -> list[Record]:
    """Ids are unique, and grow within every key and partition."""
    return [record(id) for id in range(first, first + n)]


def complete(value: Record) -> Record:
    """Makes records of a `SequenceSource`'s numbers; a partition has whole keys if their number divides `KEYS`."""
    return value if "magic" in value else record(value["id"])


class SlowSink(KafkaSink):
    """Takes its time with each record, and none while the test holds it."""

    def __init__(self, folder: Path, seconds_per_record: float, servers: str, **options: Any):
        super().__init__(servers, **options)
        self.seconds_per_record = seconds_per_record
        self._held = folder / "held"

    def hold(self) -> None:
        """The sink stalls, in all subtasks and attempts."""
        self._held.touch()

    def release(self) -> None:
        self._held.unlink()

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        writer = super().create_writer(ctx)
        write, seconds, held = writer.write_batch, self.seconds_per_record, self._held

        def slow_write(batch: SinkBatch) -> None:
            while held.exists():
                time.sleep(0.01)
            time.sleep(seconds * len(batch))
            write(batch)

        writer.write_batch = slow_write  # type: ignore[method-assign]
        return writer


class RunningSum(KeyedOperator):
    """Numbers the records of each key and adds up their amounts."""

    number = ValueState(default=0)
    total = ValueState(default=0)

    def process(self, record: Record, ctx: Any) -> Any:
        check(record)
        self.number.value += 1
        self.total.value += record["amount"]
        yield {**record, "number": self.number.value, "total": self.total.value}


def expected(inputs: Sequence[Record]) -> dict[int, Record]:
    """By id, what must come out."""
    numbers: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    outputs = {}
    for record in inputs:
        numbers[record["key"]] += 1
        totals[record["key"]] += record["amount"]
        outputs[record["id"]] = {**record, "number": numbers[record["key"]], "total": totals[record["key"]]}
    return outputs


RATE = 1000
"""Records/s that jobs read at, so that a run has several checkpoints."""


@dataclass
class Stage:
    """Where one job runs: topics, input, name and checkpoint folder. It may be started several times."""

    broker: KafkaBroker
    name: str
    source_topic: str
    out_topic: str
    folder: Path
    partitions: int = 0
    inputs: list[Record] = field(default_factory=list)

    def create_topics(self, partitions: int) -> None:
        self.partitions = partitions
        self.broker.create_topic(self.source_topic, partitions)
        self.broker.create_topic(self.out_topic, 2)

    def fork(self, name: str, out_topic: str) -> Stage:
        """A job beside this one, with the same input."""
        self.broker.create_topic(out_topic, 2)
        return replace(self, name=name, out_topic=out_topic)

    def produce(self, n: int) -> None:
        """Write so many more records of input."""
        first = self.inputs[-1]["id"] + 1 if self.inputs else 0
        self.produce_numbered(first, first + n)

    def produce_numbered(self, first: int, stop: int) -> None:
        """Write records with these ids, larger than all before."""
        more = records(stop - first, first)
        self.broker.produce(self.source_topic, more, key=lambda r: r["key"], partition=self.partition_of)
        self.inputs += more

    def produce_padded(self, n: int, size: int) -> None:
        """Write so many more records of about so many bytes."""
        first = self.inputs[-1]["id"] + 1 if self.inputs else 0
        more = [{**record, "padding": "x" * size} for record in records(n, first)]
        self.broker.produce(self.source_topic, more, key=lambda r: r["key"], partition=self.partition_of)
        self.inputs += more

    def partition_of(self, record: Record) -> int:
        return int(record["id"]) % KEYS % self.partitions

    def source(self, **options: Any) -> KafkaSource:
        defaults = {"end": "latest", "rate_limit": RATE}
        return KafkaSource(self.broker.bootstrap_servers, topics=[self.source_topic], **{**defaults, **options})

    def sink(self, **options: Any) -> KafkaSink:
        return KafkaSink(self.broker.bootstrap_servers, topic=self.out_topic, key="key", **options)

    def slow_sink(self, seconds_per_record: float) -> SlowSink:
        servers = self.broker.bootstrap_servers
        return SlowSink(self.folder.parent, seconds_per_record, servers, topic=self.out_topic, key="key")

    def pipeline(
        self,
        *,
        source: Source | None = None,
        sink: Sink | None = None,
        operator: KeyedOperator | None = None,
        parallelism: int = 2,
        restart: RestartStrategy | None = None,
        buffers: BufferConfig | None = None,
        **checkpoints: Any,
    ) -> Pipeline:
        """The job; `checkpoints` are options of its `CheckpointConfig`."""
        options: dict[str, Any] = {"uri": self.folder.as_uri(), "interval": 0.2, "timeout": 60.0, **checkpoints}
        p = Pipeline(
            self.name,
            parallelism=parallelism,
            checkpoints=CheckpointConfig(**options),
            restart=restart or RestartStrategy.fixed_delay(attempts=5, delay=0.05),
            buffers=buffers,
        )
        stream = (
            p.source("in", source or self.source()).map(complete).key_by("key").process("sum", operator or RunningSum())
        )
        stream.sink("out", sink or self.sink())
        return p

    def endless(self, **options: Any) -> Pipeline:
        """The job without an end of its input, which takes only the checkpoints that it is asked for."""
        return self.pipeline(**{"source": self.source(end=None, rate_limit=None), **NEVER, **options})

    def outputs(self) -> list[Record]:
        """What a reader of the output sees, by partition and offset."""
        return [record.json() for record in self.broker.consume(self.out_topic)]

    def findings(self) -> Findings:
        return validate(self.broker, self.out_topic, self.inputs)


@dataclass(frozen=True)
class Findings:
    """What a reader of the output topic sees."""

    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    """Records that are not what had to come out for their id, or that have no business there."""
    disordered: int = 0
    """Records that come behind a later one of their key."""
    open_transactions: int = 0
    """Partitions that hold readers up at an open transaction."""
    lost_ids: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    duplicated_ids: frozenset[int] = field(default=frozenset(), compare=False, repr=False)


EXACT = Findings()


def await_processed(handle: JobHandle, n: int) -> None:
    """Wait until so many records have come to the operator and the sink in this attempt, in flight ones included."""

    def processed() -> int:
        subtasks = handle.metrics()["subtasks"].items()
        return sum(metrics["recordsIn"] for name, metrics in subtasks if name.startswith("sum"))

    eventually(lambda: processed() >= n)


def staged_ids(storage: CheckpointStorage, metadata: CheckpointMetadata) -> set[int]:
    """The ids that a checkpoint or savepoint holds as prepared and not known to be committed."""
    ids: set[int] = set()
    for snapshot in metadata.operator("out"):
        for _, committables in storage.unspill(snapshot).state["sink"]["pending"]:
            for file in [file for one in committables for file in Committable.from_wire(one).files]:
                for rows in read_segment(storage.read_file(file)):
                    ids.update(orjson.loads(value)["id"] for value in rows.values)
    return ids


def validate(broker: KafkaBroker, topic: str, inputs: Sequence[Record]) -> Findings:
    """Over all records, read with `read_committed` from outside of the job."""
    open_transactions = count_open(broker, topic)
    return judge(broker.consume(topic), inputs, open_transactions)


def count_open(broker: KafkaBroker, topic: str) -> int:
    """Partitions that hold readers up at an open transaction."""
    committed, written = (broker.end_offsets(topic, level) for level in ("read_committed", "read_uncommitted"))
    return sum(committed[p] != written[p] for p in written)


def judge(found: Iterable[KafkaRecord], inputs: Sequence[Record], open_transactions: int) -> Findings:
    """What is wrong with an output: all of its records, in order within each partition."""
    want = expected(inputs)
    times: Counter[int] = Counter()
    last: dict[tuple[int, bytes | None], int] = defaultdict(lambda: -1)
    wrong = disordered = 0
    for one in found:
        record = one.json()
        id = record.get("id")
        times[id] += 1
        wrong += record != want.get(id) or one.key != record["key"].encode()
        if times[id] == 1:
            place = (one.partition, one.key)
            disordered += record["number"] < last[place]
            last[place] = record["number"]
    partitions_of_key: dict[bytes | None, set[int]] = defaultdict(set)
    for partition, key in last:
        partitions_of_key[key].add(partition)
    disordered += sum(len(partitions) - 1 for partitions in partitions_of_key.values())
    return Findings(
        lost=len(want.keys() - times.keys()),
        duplicated=sum(n - 1 for n in times.values()),
        wrong=wrong,
        disordered=disordered,
        open_transactions=open_transactions,
        lost_ids=frozenset(want.keys() - times.keys()),
        duplicated_ids=frozenset(id for id, n in times.items() if n > 1),
    )
