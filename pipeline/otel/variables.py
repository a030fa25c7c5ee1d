"""Variables of OpenTelemetry's that its library doesn't read here, or that it would not honour."""

from __future__ import annotations

import os
import threading
from typing import Final
from urllib.parse import urlsplit

from pipeline.errors import PipelineError

_DEFAULT: Final = "http://localhost:4318"
_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_LEAST_INTERVAL: Final = 100.0
"""Milliseconds."""
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADERS: Final = ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


def first(*names: str) -> tuple[str, str]:
    """The first variable that is set, and its value."""
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), (names[-1], ""))


def endpoint() -> str:
    """Where metrics are sent, without the path and all else that may be a secret.

    Raises:
        PipelineError: it is no URL.
    """
    name, value = first(*_ENDPOINTS)
    try:
        parts = urlsplit(value or _DEFAULT)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise PipelineError(f"{name} must be a URL, as in {_DEFAULT}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def interval() -> float:
    """How often, in seconds.

    Raises:
        PipelineError: it is no number of milliseconds, or too small.
    """
    text = os.environ.get(_INTERVAL) or "60000"
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = 0.0
    if not _LEAST_INTERVAL <= milliseconds < threading.TIMEOUT_MAX:
        raise PipelineError(f"{_INTERVAL}={text!r} must be a number of milliseconds, at least {_LEAST_INTERVAL:g}")
    return milliseconds / 1000


def check_protocol() -> None:
    """
    Raises:
        PipelineError: another protocol is asked for, or counters in another form.
    """
    name, value = first(*_PROTOCOLS)
    if value.strip().lower() not in ("", "http/protobuf"):
        raise PipelineError(
            f"{name}={value!r}: metrics are sent by http/protobuf only. Set {_PROTOCOLS[0]}=http/protobuf, and "
            f"{_ENDPOINTS[0]} to the URL for it"
        )
    value = os.environ.get(_TEMPORALITY, "")
    if value.strip().lower() not in ("", "cumulative"):
        raise PipelineError(
            f"{_TEMPORALITY}={value!r}: counters are sent cumulatively only. Unset it; a collector can make deltas "
            "(cumulativetodelta)"
        )
