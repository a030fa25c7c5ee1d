"""The code of docs/joins.md, as it stands there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "joins.md"
_BLOCK: Final = re.compile(r"(?:^\n)((?:^(?: {4}.*)?\n)+)", re.MULTILINE)


def test_what_the_page_shows_runs() -> None:
    blocks = [textwrap.dedent(block).strip("\n") for block in _BLOCK.findall(PAGE.read_text())]
    code = [block for block in blocks if block]
    assert len(code) == 2
    names: dict[str, Any] = {}
    for block in code:
        exec(compile(block, str(PAGE), "exec"), names)
