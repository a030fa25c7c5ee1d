"""Processes beside a measurement that say when they are ready, are told when to begin, and print a result as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any, Self

from pipeline.bench.errors import BenchFailed


class Helper:
    """One such process. It ends with the block, whatever happens."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._module = module
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def line(self) -> dict[str, Any]:
        """The next one that it prints.

        Raises:
            BenchFailed: it has ended.
        """
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            status = self._process.wait()
            self._errors.seek(0)
            raise BenchFailed(f"{self._module} failed with {status}:\n{self._errors.read()}")
        line: dict[str, Any] = json.loads(text)
        return line

    def tell(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
