"""Why metrics have not got there, in words without secrets."""

from __future__ import annotations

import ssl

import pytest
import requests

from pipeline.otel.session import NotingSession, cause_of


def failed(session: NotingSession, url: str, **options: object) -> str | None:
    with pytest.raises(Exception, match=r"."):
        session.post(url, **options)
    return session.problem


def test_the_systems_own_words_are_told_and_those_of_libraries_are_not() -> None:
    session = NotingSession()
    assert "Name or service not known" in str(failed(session, "http://no-such-host.invalid/hunter2"))
    assert failed(session, "http://localhost:1", headers={"key": " hunter2"}) == "InvalidHeader"
    assert failed(session, "hunter2") == "MissingSchema"
    assert "Connection refused" in str(failed(session, "http://127.0.0.1:1/hunter2?key=hunter2"))


def test_the_innermost_cause_counts() -> None:
    outer = requests.exceptions.SSLError("https://hunter2")
    outer.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert cause_of(outer) == "SSLCertVerificationError: ('self-signed certificate',)"
    assert len(cause_of(OSError("x" * 1000))) == 200
