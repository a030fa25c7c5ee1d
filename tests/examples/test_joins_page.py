"""The code of docs/joins.md, as it stands there."""

from __future__ import annotations

from typing import Any

from page_code import blocks_of, run_block


def test_what_the_page_shows_runs() -> None:
    blocks = blocks_of("joins.md")
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        run_block("joins.md", block, names)
