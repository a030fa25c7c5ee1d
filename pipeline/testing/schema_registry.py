"""`SchemaRegistry`: a schema registry in memory, over real HTTP, for tests of jobs with `Avro` and the like."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from checkpoint.options import named_options


class Refused(Exception):
    """An answer other than 200; `code` is the registry's own."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@named_options
class SchemaRegistry:
    """The part of the REST interface that confluent-kafka's client uses, on a free port of 127.0.0.1, in a thread of
    this process; the subtasks of a local job reach it.

        with SchemaRegistry() as registry:
            KafkaSource(servers, topics=["orders"], value_format=Avro(registry.url))

    Avro schemas are compared as a registry with compatibility BACKWARD does; others are always compatible.
    """

    def __init__(self, user: str | None = None, password: str = "") -> None:
        """
        Args:
            user: with it every request has to give user and password. `None` (the default): none has to.
            password: the user's.
        """
        self.requests: list[str] = []
        """Method and path of each, in order."""
        self.fail_with: int | None = None
        """An HTTP status that every request gets instead of an answer."""
        self._authorization = None
        if user is not None:
            self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._schemas: list[dict[str, Any]] = []
        """By id - 1."""
        self._subjects: dict[str, list[int]] = {}
        """Ids of their versions."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject: str, schema: str | dict[str, Any], kind: str = "AVRO") -> int:
        """Register a schema, and return its id.

        Args:
            kind: "AVRO", "JSON" or "PROTOBUF".

        Raises:
            Refused: it isn't compatible with the subject's last one.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return int(self._register(subject, {"schema": text, "schemaType": kind})["id"])

    def schemas(self, subject: str) -> list[str]:
        """All versions of a subject."""
        return [self._schemas[id - 1]["schema"] for id in self._subjects.get(subject, ())]

    def __enter__(self) -> SchemaRegistry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def answer(self, method: str, target: str, authorization: str | None, body: dict[str, Any]) -> Any:
        url = urlsplit(target)
        path = [unquote(part) for part in url.path.strip("/").split("/")]
        with self._lock:
            self.requests.append(f"{method} {url.path}")
            if self.fail_with is not None:
                raise Refused(self.fail_with, self.fail_with * 100, "told to fail")
            if self._authorization is not None and authorization != self._authorization:
                raise Refused(401, 40101, "Unauthorized")
            match method, path:
                case "POST", ["subjects", subject, "versions"]:
                    return self._register(subject, body)
                case "POST", ["subjects", subject]:
                    return self._lookup(subject, body)
                case "POST", ["compatibility", "subjects", subject, "versions", "latest"]:
                    return {"is_compatible": self._compatible(self._ids(subject), body)}
                case "GET", ["subjects", subject, "versions", version]:
                    return self._version(subject, version)
                case "GET", ["schemas", "ids", id]:
                    return self._by_id(int(id), parse_qs(url.query))
                case _:
                    raise Refused(404, 404, f"the stand-in has no {method} {url.path}")

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        ids = self._subjects.get(subject, [])
        schema = _plain(body)
        known = [id for id in ids if self._schemas[id - 1] == schema]
        if known:
            return self._full(subject, known[0])
        if not self._compatible(ids, body):
            raise Refused(409, 409, "Schema being registered is incompatible with an earlier schema")
        if schema not in self._schemas:
            self._schemas.append(schema)
        id = self._schemas.index(schema) + 1
        self._subjects[subject] = [*ids, id]
        return self._full(subject, id)

    def _lookup(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        for id in self._ids(subject):
            if self._schemas[id - 1] == _plain(body):
                return self._full(subject, id)
        raise Refused(404, 40403, "Schema not found")

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        ids = self._ids(subject)
        try:
            return self._full(subject, ids[-1] if version == "latest" else ids[int(version) - 1])
        except IndexError:
            raise Refused(404, 40402, f"Version {version} not found") from None

    def _by_id(self, id: int, query: dict[str, list[str]]) -> dict[str, Any]:
        if not 0 < id <= len(self._schemas):
            raise Refused(404, 40403, f"Schema {id} not found")
        return {**self._schemas[id - 1], "guid": str(uuid.UUID(int=id))}

    def _ids(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found")
        return self._subjects[subject]

    def _full(self, subject: str, id: int) -> dict[str, Any]:
        version = self._subjects[subject].index(id) + 1
        return {
            **self._schemas[id - 1],
            "subject": subject,
            "id": id,
            "version": version,
            "guid": str(uuid.UUID(int=id)),
        }

    def _compatible(self, ids: list[int], body: dict[str, Any]) -> bool:
        if not ids or body.get("schemaType", "AVRO") != "AVRO":
            return True
        from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
        from avro.schema import parse as parse_avro

        reader, writer = parse_avro(body["schema"]), parse_avro(self._schemas[ids[-1] - 1]["schema"])
        checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        found = checker.get_compatibility(reader, writer)
        return bool(found.compatibility is SchemaCompatibilityType.compatible)


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": body["schema"],
        "schemaType": body.get("schemaType") or "AVRO",
        "references": body.get("references") or [],
    }


def _handler(registry: SchemaRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            try:
                answer, status = registry.answer(self.command, self.path, self.headers["Authorization"], body), 200
            except Refused as refused:
                answer, status = {"error_code": refused.code, "message": str(refused)}, refused.status
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    return Handler
