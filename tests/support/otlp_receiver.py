"""A server on loopback that takes metrics by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and labels."""


class OtlpReceiver:
    """Answers with `status` and `answer`, which a test may set."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.answer = ExportMetricsServiceResponse()
        self.go_on = threading.Event()
        """Nothing is answered before."""
        self.go_on.set()

    def metrics(self, which: int = -1) -> dict[str, Any]:
        """Those of a request, by name."""
        (resource,) = self.requests[which].resource_metrics
        (scope,) = resource.scope_metrics
        found = {metric.name: metric for metric in scope.metrics}
        assert len(found) == len(scope.metrics)
        return found

    def resource(self) -> dict[str, str]:
        """Attributes of the newest request's."""
        (resource,) = self.requests[-1].resource_metrics
        return {one.key: one.value.string_value for one in resource.resource.attributes}

    def series(self, which: int = -1) -> Series:
        """All values of a request."""
        found = [
            ((name, tuple(sorted((one.key, one.value.string_value) for one in point.attributes))), point.as_double)
            for name, metric in self.metrics(which).items()
            for point in points_of(metric)
        ]
        assert len(dict(found)) == len(found)
        return dict(found)


def points_of(metric: Any) -> Any:
    return getattr(metric, metric.WhichOneof("data")).data_points


@contextmanager
def otlp_receiver() -> Iterator[tuple[OtlpReceiver, str]]:
    """With its address, as in `http://127.0.0.1:4318`."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            receiver.paths.append(self.path)
            receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
            receiver.go_on.wait(60)
            answer = receiver.answer.SerializeToString()
            self.send_response(receiver.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            if 300 <= receiver.status < 400:
                self.send_header("location", "/elsewhere")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="otlp receiver", daemon=True)
    thread.start()
    try:
        yield receiver, f"http://127.0.0.1:{server.server_port}"
    finally:
        receiver.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
