"""Asking a running job something from another process (see `pipeline.runtime.driver.operations`)."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.runtime.auth import AuthenticationError, authenticate_client
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.wire import ConnectionLost, ControlConnection

SECRET_VARIABLE: Final = "WEIR_JOB_SECRET"
LEAST_SECRET: Final = 16
"""Bytes."""
HANDSHAKE: Final = 10.0
"""Seconds that each side waits for the other one until they know each other."""
OPEN_HERE: Final[set[str]] = set()
"""Addresses at which jobs of this process can be asked."""
_ROLE: Final = "operations"


class NotReached(Exception):
    """The job at an address doesn't answer, or not this client; says what to do."""


class JobRequestFailed(Exception):
    """The job has tried, and says why it failed."""

    def __init__(self, error: str, message: str):
        super().__init__(message)
        self.error = error
        """Name of the exception's class in the job."""


def ask(
    address: str, secret: str, kind: str, patience: float | None = None, *, encrypted: bool = False, **arguments: Any
) -> Any:
    """Ask a job something and wait for its answer.

    Args:
        patience: seconds that the job's answer may take; `None` = as long as the job lives.
        encrypted: whether the job's connections are.

    Raises:
        NotReached: nobody answers there, the secret is wrong, the job has ended meanwhile, or it encrypts, and the
            library for that isn't here.
        JobRequestFailed: the job has answered that it failed.
    """
    try:
        encryption = Encryption(secret.encode()) if encrypted else None
    except PipelineError as error:
        raise NotReached(str(error)) from error
    host, _, port = address.rpartition(":")
    try:
        sock = socket.create_connection((host, int(port)), HANDSHAKE)
        secured = sock if encryption is None else encryption.client(sock)
    except (OSError, OverflowError, ValueError) as error:
        raise NotReached(
            f"no job answers at {address} ({error}): it has ended, or runs on another host, where it can only be asked "
            "from (it listens on loopback). `weir status` lists the jobs that run here"
        ) from error
    with closing(secured):
        try:
            authenticate_client(secured, secret.encode(), _ROLE, HANDSHAKE)
        except AuthenticationError as error:
            raise NotReached(
                f"{address} is no job that has this secret ({error}). A job's secret is in its file in the state "
                f"folder of the user that runs it: name that file with --secret-file, or set {SECRET_VARIABLE} "
                "(and WEIR_ENCRYPT=true, if the job encrypts)"
            ) from error
        connection = ControlConnection(secured)
        try:
            connection.send(kind, **arguments)
            answer = connection.receive(patience)
        except ConnectionLost as error:
            raise NotReached(
                f"the job at {address} has ended meanwhile ({error}). What became of it, its own output tells; "
                "`weir status` lists the jobs that run"
            ) from error
    if answer is None:
        raise NotReached(f"the job at {address} doesn't answer within {patience:g} s: its process may be stopped")
    if answer["type"] == "failed":
        raise JobRequestFailed(answer["error"], answer["message"])
    return answer["result"]
