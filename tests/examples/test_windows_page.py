"""The code of docs/windows.md, as it stands there."""

from __future__ import annotations

import ast
from typing import Any

from page_code import DOCS, blocks_of, run_block

from pipeline import Pipeline
from pipeline.testing import PipelineHarness
from sinks import KafkaSink
from sources import KafkaSource


def test_what_the_page_shows_gives_what_it_says() -> None:
    shown = next(ast.literal_eval(block) for block in blocks_of("windows.md") if block.startswith("{"))
    names: dict[str, Any] = {"p": Pipeline("page"), "KafkaSource": KafkaSource, "KafkaSink": KafkaSink}
    code = [block for block in blocks_of("windows.md") if not block.startswith("{")]
    assert len(code) == 3
    for block in code:
        run_block("windows.md", block, names)
    harness = PipelineHarness(names["p"])
    for after, amount in ((0, 1.5), (30_000, 20), (59_999, 20), (60_000, 7)):
        harness.send("orders", {"user": "ann", "amount": amount, "at": shown["start"] + after})
    harness.end_of_input()
    first, second = harness.outputs("out")
    assert first == shown
    assert (second["n"], second["total"]) == (1, 7)


def test_its_tables_have_no_gap() -> None:
    assert "|\n\n|" not in (DOCS / "windows.md").read_text()
