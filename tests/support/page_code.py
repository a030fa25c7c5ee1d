"""The code of a page of the documentation, as it stands there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[2] / "docs"
_BLOCK: Final = re.compile(r"(?:^\n)((?:^(?: {4}.*)?\n)+)", re.MULTILINE)


def blocks_of(page: str) -> list[str]:
    """The indented blocks of a page, in order.

    Args:
        page: the file's name in `docs/`.
    """
    found = (textwrap.dedent(block).strip("\n") for block in _BLOCK.findall((DOCS / page).read_text()))
    return [block for block in found if block]


def run_block(page: str, block: str, names: dict[str, Any]) -> None:
    """Run a block with these names, to which it adds its own."""
    exec(compile(block, str(DOCS / page), "exec"), names)
