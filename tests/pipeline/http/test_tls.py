"""A web server with a certificate: who is answered, which files are refused, and when it has a new one."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from deadlines import eventually
from idle_handle import idle_handle, run

from pipeline import Pipeline, PipelineError
from pipeline.http.address import Address
from pipeline.http.server import HttpServer
from pipeline.http.tls import Certificate


def make(folder: Path, name: str = "one") -> tuple[Path, Path]:
    """A certificate of its own authority for 127.0.0.1, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl here (Debian: apt-get install openssl)")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
    command = [openssl, "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpServer]:
    handle = idle_handle()
    run(handle)
    one = HttpServer(Address("127.0.0.1", 0), certificate=Certificate(*make(tmp_path)))
    one.start("orders", handle)
    yield one
    one.close()
    one.await_close()


def subject(server: HttpServer) -> str:
    """Of the certificate that the server shows now."""
    host, _, port = server.url.removeprefix("https://").rpartition(":")
    pem = ssl.get_server_certificate((host, int(port)), timeout=10)
    shown = subprocess.run(["openssl", "x509", "-noout", "-subject"], input=pem, capture_output=True, text=True)
    return shown.stdout.strip().rpartition("=")[2].strip()


def test_who_trusts_the_certificate_is_answered_and_the_token_is_still_needed(
    server: HttpServer, tmp_path: Path
) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=tmp_path / "one.pem")
    with httpx.Client(base_url=server.url, verify=trusting, trust_env=False) as http:
        assert http.get("/healthz").text == "up\n"
        assert http.get("/metrics").status_code == 401
        assert http.get("/metrics", headers={"authorization": f"Bearer {server.token}"}).status_code == 200
        link = server.new_link()
        assert link.startswith(f"{server.url}/login?code=")
        assert "; secure" in http.get(link).headers["set-cookie"].lower()
        assert http.get("/").status_code == 200
        assert http.post("/", headers={"origin": server.url}).status_code == 405  # the page's own, and no such route
        assert http.post("/", headers={"origin": "https://127.0.0.1:1"}).status_code == 403


def test_who_does_not_trust_it_or_speaks_plain_http_learns_nothing(
    server: HttpServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/healthz", trust_env=False)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url.replace('https', 'http')}/healthz", trust_env=False)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert capfd.readouterr().err == ""


def test_a_renewed_certificate_is_shown_without_a_restart(
    server: HttpServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert subject(server) == "one"
    certificate, key = make(tmp_path, "two")
    kept = "the web server keeps its old certificate"
    os.replace(certificate, tmp_path / "one.pem")
    eventually(lambda: kept in caplog.text)  # the key is not its own yet
    assert subject(server) == "one"
    os.replace(key, tmp_path / "one.key")
    eventually(lambda: subject(server) == "two")
    (tmp_path / "one.key").unlink()
    eventually(lambda: caplog.text.count(kept) == 2)
    assert subject(server) == "two"


def test_each_reason_to_keep_the_old_certificate_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    certificate = Certificate(*make(tmp_path))
    following, its_key = make(tmp_path, "two")

    def said() -> list[str]:
        """By looks for some seconds."""
        caplog.clear()
        for _ in range(3):
            certificate.renew()
        return [record.getMessage() for record in caplog.records]

    assert said() == []
    os.replace(following, tmp_path / "one.pem")
    (mismatch,) = said()
    assert "KEY_VALUES_MISMATCH" in mismatch
    (tmp_path / "one.key").unlink()
    (gone,) = said()
    assert "No such file" in gone
    os.replace(its_key, tmp_path / "one.key")
    assert said() == [f"the web server has a new certificate, of {tmp_path / 'one.pem'}"]
    (tmp_path / "one.key").unlink()
    assert said() == [gone]


def test_files_that_cannot_be_used_are_errors_before_anything_starts(tmp_path: Path) -> None:
    certificate, key = make(tmp_path)
    _, other = make(tmp_path, "two")
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    locked = tmp_path / "locked.key"
    lock = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked)]
    subprocess.run(lock, check=True, capture_output=True)
    assert Certificate(both).context.minimum_version >= ssl.TLSVersion.TLSv1_2
    for first, second, why in (
        (tmp_path / "none.pem", key, r"none.pem'"),
        (certificate, tmp_path / "none.key", r"none.key'"),
        (certificate, tmp_path, "Is a directory"),
        (certificate, other, "no certificate and its key as PEM"),
        (key, key, "no certificate and its key as PEM"),
        (certificate, None, "no certificate and its key as PEM"),
        (certificate, locked, "a password protects the key"),
        (7, key, "http_certificate must be the path of a file, not 7"),
        (certificate, True, "http_key must be the path of a file, not True"),
    ):
        with pytest.raises(PipelineError, match=rf"http_certificate.*{why}.* \(from here\)|{why} \(from here\)"):
            Certificate(first, second, " (from here)")


def test_the_options_come_from_the_script_or_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make(tmp_path)
    server = Pipeline("job", http_certificate=certificate, http_key=key)._web_server("127.0.0.1:0")
    assert server is not None
    assert server.url.startswith("https://")
    server.close()
    with pytest.raises(PipelineError, match="http_key needs http_certificate"):
        Pipeline("job", http_key=key)._web_server("127.0.0.1:0")
    monkeypatch.setenv("WEIR_HTTP_CERTIFICATE", str(tmp_path / "gone.pem"))
    with pytest.raises(PipelineError, match=r"gone\.pem.*\(from WEIR_HTTP_CERTIFICATE\)"):
        Pipeline("job", http_certificate=certificate, http_key=key)._web_server("127.0.0.1:0")
