"""`weir sink`: a job whose output has a record that Kafka refuses goes on without it."""

from __future__ import annotations

import base64
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from deadlines import PATIENCE
from small_job import running

from pipeline import JobFailed
from pipeline.cli import main
from pipeline.cli.script import find_pipeline
from pipeline.testing import KafkaBroker, failpoints

SCRIPT = """
from pipeline import CheckpointConfig, Pipeline, RestartStrategy
from sinks import KafkaSink, PrintSink
from sources import KafkaSource

p = Pipeline({name!r}, checkpoints=CheckpointConfig({folder!r}, interval=0.3), restart=RestartStrategy.fixed_delay())
stream = p.source("in", KafkaSource({servers!r}, topics=[{source!r}], end="latest"))
stream.sink("out", KafkaSink({servers!r}, topic={out!r}))
stream.sink("shown", PrintSink())
"""


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


class Place:
    """A script, and the topics of its job."""

    def __init__(self, kafka: KafkaBroker, make_topic: Callable[..., str], name: str, folder: Path) -> None:
        self.kafka = kafka
        self.name = name
        self.source, self.out = make_topic("in"), make_topic("out")
        self.script = folder / "job.py"
        self.script.write_text(
            SCRIPT.format(
                name=name,
                folder=str(folder / "checkpoints"),
                servers=kafka.bootstrap_servers,
                source=self.source,
                out=self.out,
            )
        )

    def lower_limit(self) -> None:
        entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.out, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        admin.incremental_alter_configs([resource])[resource].result(60)

    def ids(self) -> list[int]:
        return [record.json()["id"] for record in self.kafka.consume(self.out)]


@pytest.fixture
def place(
    kafka: KafkaBroker,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("WEIR_SCRIPT_FOLDER", "")
    yield Place(kafka, make_topic, unique_name("job"), tmp_path)
    sys.modules.pop("weir_script_job", None)


@pytest.mark.slow
def test_a_job_ends_at_a_record_that_kafka_refuses_and_goes_on_without_it_once_it_is_skipped(
    place: Place, spark: Any, tmp_path: Path
) -> None:
    large = {"id": 50, "x": "x" * 5_000}
    place.kafka.produce(place.source, [{"id": id} if id != 50 else large for id in range(100)])
    with failpoints.hold("committer.before_commit", timeout=PATIENCE) as commit:
        handle = find_pipeline(str(place.script)).start(spark=spark)
        try:
            commit.wait(PATIENCE)
            refused = weir("sink", "show", str(place.script), "out")
            assert refused.exit_code == 1
            assert f"job '{place.name}' runs here" in refused.output
            place.lower_limit()
            commit.release()
            with pytest.raises(JobFailed, match="MSG_SIZE_TOO_LARGE") as caught:
                handle.wait(PATIENCE)
            assert handle.restarts == 0
        finally:
            handle.cancel()
    out = place.ids()
    assert out == list(range(len(out)))

    command = re.search(r"`(weir sink skip .*? --yes)`", str(caught.value))
    assert command is not None
    saved = tmp_path / "saved.jsonl"
    words = {"SCRIPT": str(place.script), "FILE": str(saved)}
    arguments = [words.get(word, word) for word in shlex.split(command[1])[1:]]

    shown = json.loads(weir("sink", "show", str(place.script), "out", "--json").output)
    assert sum(one["rows"] for one in shown["segments"]) == 100 - len(out)
    assert shown["segments"][0]["segment"] in arguments
    assert shown["segments"][0]["writer"] == 0
    planned = weir(*arguments[:-1])
    assert planned.exit_code == 0, planned.output
    assert "would save these records" in planned.output
    assert "xxxxxxxxxx" in planned.output
    assert not saved.exists()
    assert place.ids() == out

    done = weir(*arguments)
    assert done.exit_code == 0, done.output
    [line] = saved.read_text().splitlines()
    assert json.loads(base64.b64decode(json.loads(line)["value"])) == large
    assert weir(*arguments).exit_code == 1  # it is committed

    with running(find_pipeline(str(place.script)), spark) as handle:
        handle.wait(PATIENCE)
    assert place.ids() == [id for id in range(100) if id != 50]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("show", "shown"), 1, "no sink 'shown' that stages output for Kafka; there is: out"),
        (("show", "out"), 1, "has no checkpoint"),
        (("skip", "out", "--writer", "0", "--segment", "1.0", "--row", "1", "--save", "x"), 2, "no segment such as"),
    ],
)
def test_what_cannot_be_skipped_is_refused(place: Place, arguments: tuple[str, ...], status: int, message: str) -> None:
    command, *others = arguments
    result = weir("sink", command, str(place.script), *others)
    assert (result.exit_code, message in result.output) == (status, True), result.output
