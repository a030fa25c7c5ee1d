"""Ends its own process at a chosen line of the code under test, as a crash of the host would."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, order=True)
class Line:
    file: str
    """Relative to the checkout."""
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class LineKiller:
    """Follows every line that is run of some files, in this thread and in those that start meanwhile.

    A context manager.
    """

    def __init__(self, files: Iterable[str], victim: Line | None = None, nth: int = 1) -> None:
        """
        Args:
            files: or folders, relative to the checkout.
            victim: the process is killed before this line runs for the `nth` time; `None` = it isn't.
        """
        self.counts: Counter[Line] = Counter()
        """How often each line was run."""
        self._roots = tuple(str(ROOT / file) for file in files)
        self._victim = victim
        self._nth = nth
        self._names: dict[str, str | None] = {}

    def __enter__(self) -> Self:
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._on_line if self._name(frame.f_code.co_filename) is not None else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = self._name(frame.f_code.co_filename)
        if event == "line" and name is not None:
            line = Line(name, frame.f_lineno)
            self.counts[line] += 1
            if line == self._victim and self.counts[line] == self._nth:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._on_line

    def _name(self, path: str) -> str | None:
        if path not in self._names:
            inside = path.startswith(self._roots)
            self._names[path] = str(Path(path).relative_to(ROOT)) if inside else None
        return self._names[path]
