"""Pytest for `trial.py`, each run in a fork of this process, which has imported the libraries once for all: they take
longer than most tests.

A line on standard input asks for a run: a JSON list of the file that gets its output, and pytest's arguments. Two lines
answer it: its process (which is its process group, too), and, once it has ended, its exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

_LIBRARIES = (
    "confluent_kafka.admin",
    "greenlet",
    "hypothesis",
    "hypothesis.stateful",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "pyspark.sql",
    "pytest",
    "pytest_timeout",
    "rich.console",
    "rocksdict",
)
"""None that starts threads, which would be missing in a fork."""


def main() -> None:
    for library in _LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        output, *arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            _redirect(output)
            sys.exit(importlib.import_module("pytest").main(arguments))
        os.setpgid(process, process)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _redirect(output: str) -> None:
    for name, flags, numbers in (
        (os.devnull, os.O_RDONLY, (0,)),
        (output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, (1, 2)),
    ):
        opened = os.open(name, flags)
        for number in numbers:
            os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    main()
