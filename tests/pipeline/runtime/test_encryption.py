"""Who is let into an encrypted connection, and what becomes of its key."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from wire_parts import connected_pair, encrypted_pair

from pipeline.runtime import encryption
from pipeline.runtime.auth import AuthenticationError, authenticate_client, authenticate_server, new_secret
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.network.tls_socket import Socket

SECRET = new_secret()
PATIENCE = 60.0


def both(
    client: Callable[[socket.socket], Socket], server: Callable[[socket.socket], Socket], secret: bytes = SECRET
) -> tuple[str, str]:
    """What either side says of the other, whose secret is `secret`: an error, or that all is well."""
    one, other = connected_pair()
    said: list[str] = []

    def serve() -> None:
        sock = server(other)
        try:
            said.append(f"has let in {authenticate_server(sock, SECRET, PATIENCE)}")
        except AuthenticationError as error:
            said.append(str(error))
        sock.close()

    thread = threading.Thread(target=serve)
    thread.start()
    sock = client(one)
    try:
        authenticate_client(sock, secret, "me", PATIENCE)
        clients = "is in"
    except AuthenticationError as error:
        clients = str(error)
    sock.close()
    thread.join()
    return clients, said[0]


def as_it_is(sock: socket.socket) -> Socket:
    return sock


def test_who_knows_the_secret_is_let_in() -> None:
    assert both(Encryption(SECRET).client, Encryption(SECRET).server) == ("is in", "has let in me")


def test_strangers_are_refused_by_what_they_lack() -> None:
    server = Encryption(SECRET).server
    clients, servers = both(Encryption(new_secret()).client, server)
    assert clients == "the peer has another certificate: it belongs to another job"
    assert "refuses its certificate" in servers

    clients, servers = both(as_it_is, server)
    assert clients.startswith(("the peer closed", "the connection broke"))
    assert servers.startswith("the peer doesn't encrypt as this side does")

    clients, servers = both(Encryption(SECRET).client, server, new_secret())
    assert clients == "the peer doesn't know the job's secret: it belongs to another job"
    assert servers.startswith(("the peer closed", "the connection broke"))

    clients, servers = both(Encryption(SECRET).client, as_it_is)
    assert clients.startswith(("the peer doesn't encrypt as this side does", "the peer closed", "the connection broke"))
    assert servers == "the peer speaks another protocol"


def test_who_has_the_certificate_but_not_its_key_or_none_is_refused() -> None:
    """A client that trusts everybody, as one in the middle would."""
    for own in (None, Encryption(new_secret())):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if own is None else own._client
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def client(sock: socket.socket, context: ssl.SSLContext = context) -> Socket:
            return context.wrap_socket(sock)

        _, servers = both(client, Encryption(SECRET).server)
        wanted = "the peer has no certificate" if own is None else "the peer has another certificate"
        assert servers.startswith(wanted)


def test_what_is_older_than_tls_1_3_is_refused() -> None:
    old = Encryption(SECRET)
    old._client.minimum_version = old._client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert both(old.client, Encryption(SECRET).server)[1].startswith("the peer doesn't encrypt as this side does")


def test_connections_of_one_secret_have_different_keys() -> None:
    for _ in range(2):
        one, other = encrypted_pair(SECRET)
        assert one._tls.version() == "TLSv1.3"
        assert one._tls.getpeercert(binary_form=True) == other._tls.getpeercert(binary_form=True)
        assert not one._tls.session_reused
        assert not one._tls.session.has_ticket
        one.close()
        other.close()


def test_the_certificate_says_nothing_of_the_secret_and_the_key_is_in_no_text() -> None:
    key, certificate = encryption._key_and_certificate(SECRET)
    assert (key, certificate) == encryption._key_and_certificate(SECRET)
    assert certificate != encryption._key_and_certificate(new_secret())[1]
    assert b"PRIVATE" not in certificate
    for text in (repr(Encryption(SECRET)), repr(vars(Encryption(SECRET)))):
        assert "PRIVATE" not in text
        assert SECRET.hex() not in text


@pytest.mark.parametrize("memory_files", [True, False])
def test_the_key_is_left_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_files: bool) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = files_in_memory()
    with encryption._as_file(b"key") as path:
        assert (files_in_memory() != before) == memory_files
        assert Path(path).read_bytes() == b"key"
        assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == ([] if memory_files else [0o600])
    assert list(tmp_path.iterdir()) == []
    assert files_in_memory() == before
    assert both(Encryption(SECRET).client, Encryption(SECRET).server) == ("is in", "has let in me")
    assert list(tmp_path.iterdir()) == []


def files_in_memory() -> list[str]:
    """Those that this process has open. Other threads open and close other things meanwhile."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [one for one in found if "memfd:" in one]


def test_its_library_is_an_extra_that_is_asked_for_before_anything_starts() -> None:
    code = (
        "import sys\nfrom pipeline import Pipeline, PipelineError\n"
        "from pipeline.testing import TestingSink, TestingSource\n"
        "def options(encrypt):\n"
        "    p = Pipeline('job', encrypt=encrypt)\n"
        "    p.source('in', TestingSource([1])).sink('out', TestingSink())\n"
        "    return p.options('none', spark=None, claim=None, rewind=False, allow_unclaimed=False,\n"
        "                     ignore_in_flight=None)\n"
        "print(options(False).encrypt, 'cryptography' in sys.modules, options(True).encrypt)\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'cryptography']:\n"
        "    del sys.modules[name]\n"
        "sys.modules['cryptography'] = None\n"
        "try:\n    options(True)\nexcept PipelineError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    works, missing = said.splitlines()
    assert works == "False False True"
    assert missing.endswith("pip install 'weir-streams[encryption]', on all hosts")
