"""The example of docs/testing.md that runs without anything."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_example_of_a_whole_pipeline_runs() -> None:
    section = PAGE.read_text().split("## A whole pipeline\n")[1].split("\n## ")[0]
    code = "\n".join(line[4:] for line in section.splitlines() if re.match(r"    |$", line))
    assert "PipelineHarness.restore" in code
    names: dict[str, object] = {"__name__": "testing_page"}
    exec(compile(code, str(PAGE), "exec"), names)
    assert "harness" in names
