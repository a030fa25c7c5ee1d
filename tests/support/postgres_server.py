"""A PostgreSQL server on this machine: the binaries of PyPI's `pgserver`, so that nothing needs to be installed.

PostgreSQL refuses to run as root; then it runs as `nobody`, on a copy of its files that `nobody` can read.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import psycopg
from psycopg import sql

_START_SECONDS: Final = 60.0


@dataclass
class PostgresServer:
    port: int
    process: subprocess.Popen[bytes]

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Self]:
        spec = find_spec("pgserver")
        if spec is None or spec.origin is None:
            raise RuntimeError('pgserver is missing: pip install -e ".[test]"')
        packages = Path(spec.origin).parents[1]
        with tempfile.TemporaryDirectory(prefix="weir-postgres-") as name, tempfile.TemporaryFile() as log:
            folder, data = Path(name), Path(name) / "data"
            data.mkdir(mode=0o700)
            user: dict[str, Any] = {}
            if os.geteuid() == 0:
                nobody = pwd.getpwnam("nobody")
                user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
                for part in ("pgserver/pginstall", "pgserver.libs"):
                    shutil.copytree(packages / part, folder / part, symlinks=True)
                packages = folder
                folder.chmod(0o755)
                os.chown(data, nobody.pw_uid, nobody.pw_gid)
            options: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **user}
            binaries = packages / "pgserver/pginstall/bin"
            made = subprocess.run(
                [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"],
                timeout=_START_SECONDS,
                **options,
            )
            if made.returncode:
                raise RuntimeError(f"initdb failed: {_tail(log)}")
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
            arguments = [argument for each in settings.items() for argument in ("-c", f"{each[0]}={each[1]}")]
            process = subprocess.Popen([binaries / "postgres", "-D", data, *arguments], **options)
            server = cls(port, process)
            try:
                server._wait_until_it_answers(log)
                yield server
            finally:
                process.send_signal(signal.SIGINT)  # breaks connections, and ends its own processes
                process.wait(300)

    def conninfo(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def create_database(self) -> str:
        """The conninfo of a new database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.conninfo(name)

    def _wait_until_it_answers(self, log: Any) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.conninfo(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self.process.poll() is not None or time.monotonic() >= deadline:
                    raise RuntimeError(f"PostgreSQL does not answer: {_tail(log)}") from error
            time.sleep(0.05)


def _tail(log: Any) -> str:
    log.seek(0)
    return str(log.read().decode(errors="replace")[-2000:])
