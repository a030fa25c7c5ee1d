"""The code of a page of the documentation, as it stands there."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from pipeline.cli import main

DOCS: Final = Path(__file__).parents[2] / "docs"
_COMMAND: Final = re.compile(r"(?:echo .*\| )?weir ([^<>|]*)")
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


def check_commands(blocks: Iterable[str]) -> int:
    """Whether `weir` has the commands and options of these blocks. Returns how many commands there are.

    Raises:
        click.UsageError: it hasn't.
    """
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [shlex.split(found[1], comments=True) for line in lines if (found := _COMMAND.match(line))]
    for words in commands:
        command: click.Command = main
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        command.make_parser(click.Context(command)).parse_args(list(words))
    return len(commands)
