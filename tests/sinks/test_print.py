from __future__ import annotations

from pathlib import Path

import pytest
from kafka_sink_helpers import FolderStaging, NoMetrics, batch

from sinks import PrintSink, WriterContext


def test_each_record_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writer = PrintSink("> ").create_writer(WriterContext("p", "out", 0, 1, FolderStaging(tmp_path), NoMetrics()))
    writer.write_batch(batch([{"a": 1}, "text", 2]))
    writer.write_batch(batch([]))
    assert list(writer.prepare_commit(1)) == []
    assert capsys.readouterr().out == "> {'a': 1}\n> text\n> 2\n"


def test_what_can_not_be_shown_is_escaped(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writer = PrintSink().create_writer(WriterContext("p", "out", 0, 1, FolderStaging(tmp_path), NoMetrics()))
    writer.write_batch(batch(["a\ud800", "é"]))
    assert capfd.readouterr().out == "a\\ud800\né\n"


def test_what_has_no_text_is_no_failure(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writer = PrintSink().create_writer(WriterContext("p", "out", 0, 1, FolderStaging(tmp_path), NoMetrics()))
    writer.write_batch(batch([1, 10**5000, {"a": 10**5000}]))
    assert capfd.readouterr().out == "1\n<int, whose repr raises ValueError>\n<dict, whose repr raises ValueError>\n"


def test_a_prefix_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="prefix"):
        PrintSink(1)  # type: ignore[arg-type]
