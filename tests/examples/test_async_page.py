"""The examples of docs/async.md that run without a service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.testing import PipelineHarness

PAGE = Path(__file__).parents[2] / "docs" / "async.md"


def block_with(words: str) -> dict[str, Any]:
    """Run the page's block of code that has these words; the names that it leaves."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", PAGE.read_text(), re.MULTILINE)
    (block,) = (block for block in blocks if words in block)
    names: dict[str, Any] = {"__name__": "async_page"}
    exec(compile("\n".join(line[4:] for line in block.splitlines()), str(PAGE), "exec"), names)
    return names


def test_the_first_example_asks_for_each_record() -> None:
    harness = PipelineHarness(block_with("async def enrich(order)")["p"])
    harness.send("orders", {"id": 1})
    assert harness.outputs("out") == []
    harness.run_async()
    assert harness.outputs("out") == [{"id": 1, "country": "FR"}]


def test_the_example_with_a_fake_service_holds() -> None:
    assert block_with("FakeService(str.upper")["service"].requests == ["a"]
