"""Hosts with a network between them that a test can cut: network namespaces on one bridge. They share the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

_NETWORK: Final = "10.77.0"
_HUB: Final = "hub"
_BRIDGE: Final = "br0"
_TOOLS: Final = ("ip", "bridge")
_LACKING: Final = ("not permitted", "not supported", "Unknown device type", "denied")
"""What a kernel, or a container, says that has no namespaces, bridges or veth pairs for us."""


class Unavailable(Exception):
    """There are no network namespaces here; says why."""


class Host:
    """One namespace: an address, and how to run something there."""

    def __init__(self, name: str, namespace: str, number: int):
        self.name = name
        self.namespace = namespace
        self.address = f"{_NETWORK}.{number}"

    @property
    def prefix(self) -> Sequence[str]:
        """What comes in front of a command that is to run on this host; it ends in an exec."""
        return ("ip", "netns", "exec", self.namespace)


class Hosts:
    """A hub and hosts that are joined by it; a context manager that removes them all.

    What the test has started there must have ended before: a namespace lives as long as a process in it.
    """

    def __init__(self, *names: str):
        """
        Raises:
            Unavailable: neither root nor iproute2, or the kernel has no namespaces, bridges or veth pairs.
        """
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing or os.geteuid():
            why = f"no {' and no '.join(missing)} (iproute2)" if missing else "not run by root"
            raise Unavailable(f"no network namespaces: {why}")
        self._made: list[Host] = []
        try:
            self.hub = self._make(_HUB)
            self._on_hub("ip", "link", "add", "name", _BRIDGE, "type", "bridge")
            self._on_hub("ip", "address", "add", f"{self.hub.address}/24", "dev", _BRIDGE)
            self._on_hub("ip", "link", "set", "dev", _BRIDGE, "up")
            self._by_name = {name: self._join(name) for name in names}
        except RuntimeError as error:
            self.close()
            if not any(reason in str(error) for reason in _LACKING):
                raise
            raise Unavailable(f"no network namespaces: {error}") from error

    def __getitem__(self, name: str) -> Host:
        return self._by_name[name]

    def part(self, *names: str) -> None:
        """Between these hosts nothing comes through any more; each still reaches the hub and the others."""
        for name in names:
            self._port(name, "isolated", "on")

    def cut_off(self, name: str) -> None:
        """This host reaches nobody, and nobody it; it is not told."""
        self._port(name, "state", "0")

    def heal(self) -> None:
        """Everybody reaches everybody again."""
        for name in self._by_name:
            self._port(name, "isolated", "off")
            self._port(name, "state", "3")

    def _port(self, name: str, option: str, value: str) -> None:
        self._on_hub("bridge", "link", "set", "dev", name, option, value)

    def _make(self, name: str) -> Host:
        host = Host(name, f"weir-{os.getpid()}-{name}", len(self._made) + 1)
        _run("ip", "netns", "add", host.namespace)
        self._made.append(host)
        _run("ip", "-n", host.namespace, "link", "set", "dev", "lo", "up")
        return host

    def _join(self, name: str) -> Host:
        host = self._make(name)
        one_end = ("ip", "link", "add", "name", "eth0", "netns", host.namespace, "type", "veth")
        _run(*one_end, "peer", "name", name, "netns", self.hub.namespace)
        self._on_hub("ip", "link", "set", "dev", name, "master", _BRIDGE, "up")
        _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        _run("ip", "-n", host.namespace, "link", "set", "dev", "eth0", "up")
        return host

    def _on_hub(self, *command: str) -> None:
        _run(*self.hub.prefix, *command)

    def close(self) -> None:
        while self._made:
            _run("ip", "netns", "delete", self._made.pop().namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
