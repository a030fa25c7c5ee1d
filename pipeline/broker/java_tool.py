"""Running Kafka's own Java tools, for what librdkafka's admin client can't do."""

from __future__ import annotations

import subprocess
from typing import Final

from pipeline.broker.jars import kafka_jars
from pipeline.broker.java import find_java

_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_SILENT_LOG: Final = "-Dorg.apache.logging.log4j.level=ERROR"


def run_java_tool(main_class: str, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a tool (`org.apache.kafka.tools.TransactionsCommand`) and return what it printed, whatever its exit status.

    Args:
        timeout: seconds. A tool takes two, as a rule; the first call ever fetches Kafka (`pipeline.broker.jars`).

    Raises:
        subprocess.TimeoutExpired: it was killed after `timeout`.
        JavaMissing: no Java, or one too old.
        FetchFailed: the jars can't be fetched.
    """
    return subprocess.run(
        [find_java(), *_OPTIONS, _SILENT_LOG, "-cp", f"{kafka_jars()}/*", main_class, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
