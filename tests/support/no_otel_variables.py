"""A fixture: no variable of OpenTelemetry's is set."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
