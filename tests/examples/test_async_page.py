"""The examples of docs/async.md that run without a service."""

from __future__ import annotations

from typing import Any

from page_code import blocks_of, run_block

from pipeline.testing import PipelineHarness


def block_with(words: str) -> dict[str, Any]:
    """Run the page's block of code that has these words; the names that it leaves."""
    (block,) = (block for block in blocks_of("async.md") if words in block)
    names: dict[str, Any] = {"__name__": "async_page"}
    run_block("async.md", block, names)
    return names


def test_the_first_example_asks_for_each_record() -> None:
    harness = PipelineHarness(block_with("async def enrich(order)")["p"])
    harness.send("orders", {"id": 1})
    assert harness.outputs("out") == []
    harness.run_async()
    assert harness.outputs("out") == [{"id": 1, "country": "FR"}]


def test_the_example_with_a_fake_service_holds() -> None:
    assert block_with("FakeService(str.upper")["service"].requests == ["a"]
