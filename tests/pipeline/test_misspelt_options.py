"""Misspelt options are errors that say which one was meant."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from checkpoint.options import named_options
from formats import Avro
from pipeline import (
    AggregatingState,
    BufferConfig,
    CheckpointConfig,
    JobHandle,
    Pipeline,
    RestartStrategy,
    ValueState,
    WatermarkStrategy,
)
from pipeline.streams import ConnectedStreams, Stream
from pipeline.testing import OperatorHarness, TestingSink, TestingSource
from sinks import FileSink, KafkaSink
from sources import FileSource, KafkaSource, SequenceSource


@pytest.mark.parametrize(
    ("call", "where", "meant"),
    [
        (lambda: Pipeline("job", paralelism=2), "Pipeline", "parallelism"),
        (lambda: Pipeline("job").start(restor="none"), "Pipeline.start", "restore"),
        (lambda: Pipeline("job").run(allow_unclaimd=True), "Pipeline.run", "allow_unclaimed"),
        (lambda: CheckpointConfig("/tmp/x", intervall=5), "CheckpointConfig", "interval"),
        (lambda: KafkaSource("b:9092", topic=["a"]), "KafkaSource", "topics"),
        (lambda: KafkaSink("b:9092", topics="a"), "KafkaSink", "topic"),
        (lambda: FileSource("/tmp", formt="jsonl"), "FileSource", "format"),
        (lambda: FileSink("/tmp", compresion="zstd"), "FileSink", "compression"),
        (lambda: SequenceSource(partition=3), "SequenceSource", "partitions"),
        (lambda: BufferConfig(max_byte=3), "BufferConfig", "max_bytes"),
        (lambda: ValueState(defualt=0), "ValueState", "default"),
        (lambda: TestingSource([], batchsize=3), "TestingSource", "batch_size"),
        (lambda: OperatorHarness(None, brodcast="process"), "OperatorHarness", "broadcast"),
        (lambda: stream().map(str, paralelism=3), "Stream.map", "parallelism"),
        (lambda: stream().sink("out", TestingSink(), parallel=3), "Stream.sink", "parallelism"),
        (
            lambda: stream().connect(stream()).process("x", None, paralelism=3),
            "ConnectedStreams.process",
            "parallelism",
        ),
    ],
)
def test_the_nearest_option_is_named(call: Callable[[], Any], where: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{where} has no option ")
    assert f"; did you mean {meant!r}? Its options: " in message


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Pipeline(),
            "Pipeline: missing a required argument: 'name'; it is called as Pipeline(name, parallelism=1",
        ),
        (
            lambda: Pipeline("job").source(SequenceSource(3)),
            "Pipeline.source: missing a required argument: 'source'; "
            "it is called as source(id, source, parallelism=None)",
        ),
        (
            lambda: stream().process(OperatorHarness),
            "Stream.process: missing a required argument: 'operator'; "
            "it is called as process(id, operator, parallelism=None, state_backend=None, on_error='fail')",
        ),
        (
            lambda: stream().map(str, "id", 1, "skip", 2),
            "Stream.map: too many positional arguments; it is called as map(function",
        ),
    ],
)
def test_a_call_without_what_it_needs_is_told_how_it_is_written(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(said)


def test_an_error_of_the_called_code_itself_is_left_as_it_is() -> None:
    @named_options
    class Mine:
        def add(self, number: int) -> int:
            return number + "1"  # type: ignore[operator]

    with pytest.raises(TypeError, match=r"^unsupported operand"):
        Mine().add(1)


_STREAM = Pipeline("streams").source("in", TestingSource())


def stream() -> Stream:
    return _STREAM


_CLASSES = [
    Pipeline, Stream, ConnectedStreams, JobHandle, CheckpointConfig, BufferConfig, WatermarkStrategy, RestartStrategy,
    ValueState, AggregatingState, KafkaSource, FileSource, SequenceSource, KafkaSink, FileSink, Avro, TestingSource,
    TestingSink,
]  # fmt: skip


@pytest.mark.parametrize("cls", _CLASSES)
def test_every_public_call_names_its_options(cls: Any) -> None:
    for name, member in vars(cls).items():
        if (name.startswith("_") and name != "__init__") or not inspect.isfunction(member):
            continue
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in inspect.signature(member).parameters.values()):
            continue  # its options have names of the user's
        with pytest.raises(TypeError, match="has no option 'no_such_option'"):
            member(*([object()] if name != "__init__" else [object.__new__(cls)]), no_such_option=1)


def test_signatures_and_pickles_are_what_they_were() -> None:
    assert "max_parallelism" in inspect.signature(Pipeline).parameters
    config = CheckpointConfig("/tmp/x", interval=5)
    assert pickle.loads(pickle.dumps(config)) == config
