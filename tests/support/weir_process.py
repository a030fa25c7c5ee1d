"""The command `weir` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`weir` with these arguments, both outputs in one pipe."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def await_line(process: subprocess.Popen[str], wanted: str) -> str:
    """The first line with `wanted` in it.

    Raises:
        AssertionError: the process has ended without it; has all it said.
    """
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return line
    raise AssertionError(f"ended without {wanted!r}: {''.join(lines)}")
