"""`weir run` of an example, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
_WEIR: Final = "from pipeline.cli import main; main(prog_name='weir')"


def weir_run(example: str, *options: str, first: str = "", **environment: str) -> str:
    """What it printed.

    Args:
        first: Python code that runs in the process before the command does.

    Raises:
        AssertionError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{first}\n{_WEIR}", "run", str(EXAMPLES / example), *options],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
