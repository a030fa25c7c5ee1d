"""A page of commands, run as a reader would: in one folder, some of them in terminals of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from deadlines import eventually

from pipeline.broker.ports import free_ports
from pipeline.broker.readiness import await_broker

_BLOCK: Final = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    how: str
    text: str


def fenced_blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


class Terminals:
    """Runs commands in one folder; what runs in the background is ended with all that it has started."""

    def __init__(self, folder: Path, bootstrap: str):
        self._folder = folder
        scripts = folder / "bin"
        scripts.mkdir()
        (scripts / "weir").write_text(
            f'#!/bin/sh\nexec {sys.executable} -c \'from pipeline.cli import main; main(prog_name="weir")\' "$@"\n'
        )
        (scripts / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for script in scripts.iterdir():
            script.chmod(0o755)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
        self._environment = {
            **kept,
            "PATH": f"{scripts}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WEIR_KAFKA_BOOTSTRAP": bootstrap,
            "WEIR_KAFKA_PORT": bootstrap.rpartition(":")[2],
            "WEIR_STATE_DIR": str(folder / "state"),
        }
        self._behind: list[subprocess.Popen[bytes]] = []
        self.log = folder / "background.log"

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}\n{self.log.read_text()}"
        return done.stdout

    def start(self, command: str) -> None:
        with self.log.open("ab") as log:
            self._behind.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"],
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def await_log(self, said: str) -> None:
        """Until what runs in the background has said so."""
        eventually(lambda: said in self.log.read_text())

    def close(self) -> None:
        for process in reversed(self._behind):
            left = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.terminate()
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for child in psutil.wait_procs(left, 10)[1]:
                child.kill()


def follow(page: Path, folder: Path, terminals: Terminals, bootstrap: str) -> int:
    """Do what a page says; its job is `orders`, its Spark master listens at 7077.

    Returns:
        How many of its outputs were compared.
    """
    printed, compared = "", 0
    master = str(free_ports(1)[0])
    for block in fenced_blocks(page):
        text = block.text.replace("localhost:9092", bootstrap).replace("7077", master)
        match block.kind, block.how:
            case "python", name:
                (folder / name).write_text(text)
            case "bash", "in the background":
                terminals.start(text.strip())
                if text.strip() == "weir kafka":
                    await_broker(bootstrap, 120)
                elif "spark-class" in text:
                    terminals.await_log("New state: ALIVE" if ".Master " in text else "Successfully registered with")
                else:  # a reader sees when the job runs
                    terminals.run("until weir status orders >/dev/null 2>&1; do sleep 0.2; done")
            case "bash", "":
                printed = terminals.run(text)
            case "text", "":
                assert printed == text
                compared += 1
            case other:
                raise AssertionError(f"what is {other}?")
    return compared
