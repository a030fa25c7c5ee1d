"""The requests by which metrics are sent, and what became of them."""

from __future__ import annotations

from typing import Any, Final

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from checkpoint.counted import counted

LONGEST: Final = 200
"""Characters of a text that comes from outside."""


class NotingSession(requests.Session):
    """Keeps what became of the last request. OpenTelemetry's library only logs that, with the whole address, and takes
    any answer below 400 for a success."""

    problem: str | None = None
    """What went wrong with it; has nothing of the address and of headers, which may have secrets in them."""

    def request(self, method: Any, url: Any, *args: Any, **options: Any) -> requests.Response:
        options["allow_redirects"] = False  # headers would go to whatever host the answer names
        try:
            response = super().request(method, url, *args, **options)
            self.problem = _problem(response)
        except Exception as error:
            self.problem = cause_of(error)
            raise
        return response


def _problem(response: requests.Response) -> str | None:
    if not 200 <= response.status_code < 300:
        return f"it answers {response.status_code} {response.reason}"[:LONGEST]
    if response.headers.get("content-type", "").startswith("application/x-protobuf"):
        refused = ExportMetricsServiceResponse.FromString(response.content).partial_success
        if refused.rejected_data_points:
            return f"it refuses {counted(refused.rejected_data_points, 'value')}: {refused.error_message}"[:LONGEST]
    return None


def cause_of(error: BaseException) -> str:
    """The innermost exception, which is the system's in most cases."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    name = type(error).__name__
    # Those of libraries may quote the address, or a header.
    from_system = isinstance(error, OSError) and not isinstance(error, requests.RequestException)
    return f"{name}: {error}"[:LONGEST] if from_system else name
