"""The first page's job is one, and its commands are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from page_code import check_commands

from pipeline import Pipeline
from sinks import PrintSink
from sources import KafkaSource

README: Final = (Path(__file__).parents[2] / "README.md").read_text()


def blocks() -> list[str]:
    """Indented ones."""
    found = re.findall(r"(?:^(?: {4}.*)?\n)+", README, re.MULTILINE)
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE).strip() for block in found if block.strip()]


def test_the_job_can_be_planned() -> None:
    (code,) = [block for block in blocks() if "Pipeline(" in block]
    names: dict[str, Any] = {"__name__": "orders"}
    exec(compile(code, "orders.py", "exec"), names)
    assert [vertex.name for vertex in names["p"].plan().vertices] == ["orders", "totals → out"]


def test_windows_joins_and_services_can_be_planned() -> None:
    async def geocode(order: Any) -> Any:
        return order

    (code,) = [block for block in blocks() if ".window(" in block]
    p = Pipeline("shop")
    source = KafkaSource("localhost:9092", topics=["records"], value_format="json")
    names: dict[str, Any] = {"geocode": geocode, **{name: p.source(name, source) for name in ("orders", "payments")}}
    exec(compile(code, "README.md", "exec"), names)
    for name in ("minutes", "late", "paid", "placed"):
        names[name].sink(name, PrintSink())
    planned = [step.id for vertex in p.plan().vertices for step in vertex.steps]
    assert {"window-1", "join-1", "map_async-1", "map_async-1-errors"} <= set(planned)


def test_the_commands_take_what_is_written() -> None:
    assert check_commands(blocks()) >= 5
