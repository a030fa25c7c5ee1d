"""Encryption of what a job's processes say to each other: TLS 1.3, on both sides with one certificate.

Its private key is derived from the job's secret, so who knows the secret has the same certificate, and nothing else has
to travel or to be kept. A peer must show that very certificate. The keys of a connection are agreed on anew each time:
who learns the secret later can't read what was recorded before.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError
from pipeline.runtime.network.tls_socket import TlsSocket

EXTRA: Final = "weir-streams[encryption]"
_PURPOSE: Final = b"weir: private key of TLS"
_NAME: Final = "weir"
_SINCE, _UNTIL = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
"""The certificate is as old as the secret, whatever clocks say."""


def require_library() -> None:
    """
    Raises:
        PipelineError: the library that makes certificates can't be imported.
    """
    try:
        import cryptography.x509  # noqa: F401
    except ImportError as error:
        raise PipelineError(
            f"encrypt=True needs a library that can't be imported on host {socket.gethostname()} ({error}); "
            f"pip install '{EXTRA}', on all hosts"
        ) from error


class Encryption:
    """For the connections of all who know one secret."""

    def __init__(self, secret: bytes) -> None:
        """
        Raises:
            PipelineError: the library that makes certificates can't be imported.
        """
        require_library()
        key, certificate = _key_and_certificate(secret)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.check_hostname = False  # the certificate is a job's, wherever it runs
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.num_tickets = 0  # no connection goes on with the keys of another one
        with _as_file(key + certificate) as path:
            for context in (self._client, self._server):
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.verify_mode = ssl.CERT_REQUIRED
                context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # see `TlsSocket`
                context.load_verify_locations(cadata=certificate.decode())
                context.load_cert_chain(path)

    def client(self, sock: socket.socket) -> TlsSocket:
        """The side that has connected; the handshake is to come.

        Raises:
            OSError: the peer is gone.
        """
        return TlsSocket(sock, self._client, server_side=False)

    def server(self, sock: socket.socket) -> TlsSocket:
        """The side that was connected to; the handshake is to come.

        Raises:
            OSError: the peer is gone.
        """
        return TlsSocket(sock, self._server, server_side=True)


def _key_and_certificate(secret: bytes) -> tuple[bytes, bytes]:
    """As PEM; always the same for the same secret."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.from_private_bytes(HKDF(SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _SINCE, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)  # Ed25519 signs the same in the same way
    )
    as_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return as_pem, certificate.public_bytes(Encoding.PEM)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The path of a file for this process, for as long as it is needed: `ssl` reads keys from files only. It is in
    memory where the system has such files, else readable for this user only."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with open(os.memfd_create("weir"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(content)
            named.flush()
            yield named.name
