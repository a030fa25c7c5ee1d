"""A driver in a process of its own that runs a stage's job again and again, each time with the settings that it is
told, and takes savepoints and stops the job meanwhile: `ChaosDriver`."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_job import Stage
from rounds_driver import RoundsDriver, Status, watch, write

from pipeline import RestartStrategy
from pipeline.handle import JobHandle
from pipeline.runtime.driver.spark.spark_job import local_context
from pipeline.testing import KafkaBroker
from pipeline.testing.kafka_backends import OpenBackend

SLOTS = 16
ASK_TIMEOUT = 180.0


@dataclass
class Settings:
    """What one start of the job is given."""

    number: int
    """Which start it is."""
    parallelism: int
    alignment: str | float
    max_concurrent: int
    interval: float
    max_transaction_bytes: int
    restarts: int
    """How many failures the driver gets over by itself, before it ends the job and it has to be started again."""
    restore: str = "latest"


@dataclass
class Answer:
    """To a question."""

    error: str | None
    """`None`: done."""


class ChaosDriver(RoundsDriver):
    """The driver's process, from the outside. What it logs is in `driver.log`."""

    def __init__(self, stage: Stage, folder: Path):
        servers, topics = stage.broker.bootstrap_servers, (stage.source_topic, stage.out_topic)
        super().__init__(folder, stage.name, __file__, servers, *topics, str(stage.folder))
        self._asked = 0

    def ask(self, what: str, where: Path | None = None) -> int:
        """ "savepoint" or "stop" the running job, to this folder; returns at once with the question's number."""
        self._asked += 1
        path = self._answer(self._asked)
        path.unlink(missing_ok=True)
        self.tell({"ask": what, "where": None if where is None else str(where), "answer": str(path)})
        return self._asked

    def answer(self, number: int) -> Answer | None:
        """`None` as long as there is none."""
        path = self._answer(number)
        return Answer(**json.loads(path.read_text())) if path.exists() else None

    def _answer(self, number: int) -> Path:
        return self.folder / f"answer-{number}.json"


# -- in the driver's process ----------------------------------------------------------------------------------------


class _External(OpenBackend):
    """A broker that another process has started, and perhaps killed a moment ago: nothing is asked of it here."""

    def __init__(self, servers: str) -> None:
        self.bootstrap_servers = servers

    def kill(self) -> None:
        raise RuntimeError("the broker is another process's")

    def restart(self) -> None:
        raise RuntimeError("the broker is another process's")

    def stop(self) -> None:
        """Leaves it running."""


def main(folder: Path, name: str, servers: str, source_topic: str, out_topic: str, checkpoints: str) -> None:
    stage = Stage(KafkaBroker("running", _External(servers)), name, source_topic, out_topic, Path(checkpoints))
    spark = local_context(SLOTS, name)
    handle: JobHandle | None = None
    for line in sys.stdin:
        told = json.loads(line)
        if "ask" in told:
            assert handle is not None
            threading.Thread(target=_answer, args=(handle, told), daemon=True).start()
        else:
            settings = Settings(**told)
            try:
                handle = _start(stage, settings, spark)
            except Exception:  # as a user's script ends; it is started again
                failed = Status(settings.number, ended="failed", failure=traceback.format_exc())
                write(folder / "status.json", asdict(failed))
                continue
            threading.Thread(target=watch, args=(handle, settings.number, folder / "status.json"), daemon=True).start()
    if handle is not None:
        handle.cancel()
    spark.stop()


def _start(stage: Stage, settings: Settings, spark: Any) -> JobHandle:
    restart = RestartStrategy.none()
    if settings.restarts:
        restart = RestartStrategy.fixed_delay(attempts=settings.restarts, delay=0.2)
    return stage.pipeline(
        source=stage.source(end=None, rate_limit=None, group_id=f"{stage.name}-group", discovery_interval=1.0),
        sink=stage.sink(max_transaction_bytes=settings.max_transaction_bytes),
        parallelism=settings.parallelism,
        restart=restart,
        alignment=settings.alignment,
        max_concurrent=settings.max_concurrent,
        interval=settings.interval,
        tolerable_failures=settings.restarts,
    ).start(restore=settings.restore, spark=spark)


def _answer(handle: JobHandle, told: dict[str, Any]) -> None:
    error: str | None = None
    try:
        if told["ask"] == "savepoint":
            handle.savepoint(told["where"], ASK_TIMEOUT)
        else:
            handle.stop(told["where"], timeout=ASK_TIMEOUT)
    except Exception as caught:  # as a rule a worker was killed at that moment; the test judges
        error = f"{type(caught).__name__}: {caught}"
    write(Path(told["answer"]), {"error": error})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
