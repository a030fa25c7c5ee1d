"""The certificate of a job's web server."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError

_LOG = logging.getLogger(f"weir.{__name__}")
_State = tuple[tuple[int, int, int], ...]


class Certificate:
    """A certificate with its key, as two files of PEM or one. They are read anew when they have changed.

    Args:
        certificate: has the chain, the server's own certificate first.
        key: has the private key, which no password protects; `None`: it is in the same file.
        origin: where the paths come from, for the message.

    Raises:
        PipelineError: a file can't be read, or they are no certificate and its key.
    """

    def __init__(self, certificate: Any, key: Any = None, origin: str = "") -> None:
        for name, value in (("http_certificate", certificate), ("http_key", key)):
            if not isinstance(value, str | Path) and (name, value) != ("http_key", None):
                raise PipelineError(f"{name} must be the path of a file, not {value!r}{origin}")
        self._certificate = Path(certificate)
        self._key = self._certificate if key is None else Path(key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._problem: str | None = None
        """Why those that are there now can't be used."""
        try:
            self._state = self._seen()
            self._load(self.context)
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self._why(error)}{origin}") from error

    def renew(self) -> None:
        """For connections to come, if a file has changed. While the new ones can't be used, the old ones stay. The log
        says each reason once."""
        try:
            now = self._seen()
            if now == self._state:
                return
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # half of a pair would spoil what is in use
            self._load(self.context)
        except (OSError, ValueError) as error:
            why = self._why(error)
            if why != self._problem:
                _LOG.warning("the web server keeps its old certificate: %s", why)
            self._state, self._problem = (), why
        else:
            self._state, self._problem = now, None
            _LOG.info("the web server has a new certificate, of %s", self._certificate)

    def _seen(self) -> _State:
        found = (os.stat(path) for path in (self._certificate, self._key))
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)

    def _load(self, context: ssl.SSLContext) -> None:
        for path in (self._certificate, self._key):
            path.open("rb").close()  # says which of them can't be read
        context.load_cert_chain(self._certificate, self._key, password=_no_password)

    def _why(self, error: Exception) -> str:
        what = f"http_certificate={str(self._certificate)!r}, http_key={str(self._key)!r} can't be used: "
        if isinstance(error, ssl.SSLError):
            return (
                f"{what}they are no certificate and its key as PEM ({error.reason or error}). "
                "`openssl x509 -in FILE` and `openssl pkey -in FILE` read such files"
            )
        return f"{what}{error}"


def _no_password() -> str:
    """Instead of a question at the terminal."""
    raise ValueError("a password protects the key; `openssl pkey -in FILE -out FILE2` makes a file without")
