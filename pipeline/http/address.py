"""Where a job's web server listens, and with which token."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.errors import PipelineError
from pipeline.runtime.driver.operations_client import LEAST_SECRET

TOKEN_VARIABLE: Final = "WEIR_HTTP_TOKEN"
_FORM: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9.\-]+)):(?P<port>\d{1,5})")
_IN_A_HEADER: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Address:
    """An interface and a port."""

    host: str
    port: int
    """0: the system chooses one."""

    @classmethod
    def parse(cls, text: Any, origin: str = "") -> Address:
        """
        Args:
            text: as in `127.0.0.1:8080`, `localhost:0` or `[::1]:8080`.
            origin: where it comes from, for the message.

        Raises:
            PipelineError: it is none.
        """
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found["port"]) > 65535:
            raise PipelineError(
                f"http must be an address and a port, as in 127.0.0.1:8080 (port 0: the system chooses one), "
                f"not {text!r}{origin}"
            )
        return cls(found["v6"] or found["host"], int(found["port"]))

    @property
    def is_loopback(self) -> bool:
        """Whether only this host reaches it."""
        return is_loopback(self.host)

    @property
    def for_browser(self) -> Address:
        """Where a browser on this host finds it. Not all of them go to the address that stands for every interface."""
        return Address("localhost", self.port) if self.host in ("0.0.0.0", "::") else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Of a name only `localhost` counts: where others lead may change."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_for(address: Address, variables: Mapping[str, str] = os.environ) -> str:
    """The user's token, or a new one for this job.

    Raises:
        PipelineError: the user's can't be used, or there is none and other hosts reach the address.
    """
    own = variables.get(TOKEN_VARIABLE)
    if not own:
        if not address.is_loopback:
            raise PipelineError(
                f"http={str(address)!r} can be reached from other hosts: set the variable {TOKEN_VARIABLE} to a token "
                f"of at least {LEAST_SECRET} bytes, which every request has to bring, or listen on 127.0.0.1"
            )
        return secrets.token_urlsafe(32)
    if len(own.encode()) < LEAST_SECRET:
        raise PipelineError(f"{TOKEN_VARIABLE} must have at least {LEAST_SECRET} bytes; or unset it")
    if _IN_A_HEADER.fullmatch(own) is None:
        raise PipelineError(
            f"{TOKEN_VARIABLE} must be of visible ASCII characters without spaces, since it goes into a header; "
            "`openssl rand -hex 32` makes one"
        )
    return own
