"""The description of the REST interface, in OpenAPI 3.1: what clients are made from."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkpoint.waiting import WaitKind
from pipeline.http.long_requests import Operation
from pipeline.http.rest_changes import BODIES
from pipeline.runtime.driver.status.checkpoint_stats import CheckpointStats
from pipeline.runtime.driver.status.job_statuses import STATUSES
from pipeline.version import VERSION

_REF: Final = "#/components/schemas/{name}"
_ANY: Final[dict[str, Any]] = {"type": "object", "additionalProperties": True}
_NUMBER_OR_NULL: Final[dict[str, Any]] = {"type": ["number", "null"]}
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What to do."},
    },
}
_JOB: Final[dict[str, Any]] = {
    "type": "object",
    "description": "As `weir status --json` has it, with the graph and the figures of each subtask. Times are seconds.",
    "required": ["name", "status", "started", "restarts", "checkpoints", "vertices", "graph", "subtasks", "waits"],
    "properties": {
        "name": {"type": "string"},
        "status": {"enum": list(STATUSES)},
        "started": {"type": "number", "description": "Since 1970."},
        "uptime": {"type": "number"},
        "running_for": _NUMBER_OR_NULL,
        "restarts": {"type": "integer"},
        "encrypted": {"type": "boolean", "description": "Whether the connections between its processes are."},
        "restart_causes": {"type": "array", "items": _ANY},
        "failure": {"type": ["string", "null"]},
        "autoscale": {"type": ["object", "null"], "description": "What it does by itself, and what it refuses."},
        "otel": {
            "type": ["object", "null"],
            "description": "How the export of metrics goes; null without it.",
            "required": ["to", "every", "sent", "last", "failing_since", "why"],
            "properties": {
                "to": {"type": "string"},
                "every": {"type": "number"},
                "sent": {"type": "integer", "description": "How often."},
                "last": _NUMBER_OR_NULL,
                "failing_since": _NUMBER_OR_NULL,
                "why": {"type": ["string", "null"]},
            },
        },
        "start": {"type": "object", "additionalProperties": {"type": "number"}},
        "checkpoints": {"type": "array", "items": {"$ref": _REF.format(name="CheckpointStats")}},
        "checkpoints_completed": {"type": "integer"},
        "checkpoints_failed": {"type": "integer"},
        "recoveries": {"type": "array", "items": _ANY},
        "vertices": {"type": "object", "additionalProperties": _ANY},
        "subtasks": {"type": "object", "additionalProperties": _ANY, "description": "Metrics by subtask."},
        "graph": _ANY,
        "gates": {"type": "array", "items": _ANY},
        "event_time": {"type": "array", "items": _ANY},
        "hot_keys": {
            "type": "array",
            "items": _ANY,
            "description": "Keys with most records a second: subtask, key (null: not named), share of its records.",
        },
        "waits": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["what", "kind", "who", "since"],
                "properties": {
                    "what": {"type": "string"},
                    "kind": {"enum": [kind.value for kind in WaitKind]},
                    "who": {"type": "string"},
                    "since": {"type": "number", "description": "Since 1970."},
                },
            },
        },
    },
}
_ANSWERS: Final[dict[tuple[str, str], tuple[str, Any]]] = {
    ("GET", "/openapi.json"): ("This description.", _ANY),
    ("GET", "/jobs"): ("The jobs of this server: one.", {"jobs": _ANY}),
    ("GET", "/jobs/{job}"): ("How a job is doing.", "Job"),
    ("GET", "/jobs/{job}/diagnosis"): ("What goes on, in sentences.", {"sentences": _ANY}),
    ("GET", "/jobs/{job}/metrics"): ("All metrics (docs/metrics.md).", _ANY),
    ("GET", "/jobs/{job}/subtasks"): ("The subtasks, with process ids and metrics.", {"subtasks": _ANY}),
    ("GET", "/jobs/{job}/checkpoints"): ("Newest checkpoints, the newest first.", {"checkpoints": "CheckpointStats"}),
    ("GET", "/jobs/{job}/checkpoints/{id}"): ("A checkpoint with the parts of its subtasks.", "CheckpointStats"),
    ("GET", "/jobs/{job}/operations"): ("What was asked for, the newest first.", {"operations": "Operation"}),
    ("GET", "/jobs/{job}/operations/{id}"): ("How far that is.", "Operation"),
    ("POST", "/jobs/{job}/checkpoints"): ("Take a checkpoint now.", "Operation"),
    ("POST", "/jobs/{job}/savepoints"): ("Write a savepoint.", "Operation"),
    ("POST", "/jobs/{job}/rescale"): ("Go on at another parallelism.", "Operation"),
    ("POST", "/jobs/{job}/stop"): ("End the job behind a last checkpoint, with everything committed.", "Operation"),
    ("POST", "/jobs/{job}/cancel"): ("End the job at once.", "Operation"),
}
"""By method and path: what it is, and the schema of its answer: a schema's name, or the name of a list and of its
items."""
_QUERIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "/jobs/{job}/checkpoints": ("limit", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}),
    "/jobs/{job}/operations/{id}": ("wait", {"type": "number", "minimum": 0, "maximum": 30, "default": 0}),
}


def description(prefix: str) -> dict[str, Any]:
    """
    Args:
        prefix: of all paths, as in `/api/v1`.
    """
    bodies = list(BODIES.values())
    _, schemas = msgspec.json.schema_components([CheckpointStats, Operation, *bodies], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), (summary, answer) in _ANSWERS.items():
        paths.setdefault(prefix + path, {})[method.lower()] = _operation(method, path, summary, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": VERSION, "description": "A job, as its driver knows it."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Job": _JOB, "Problem": _PROBLEM},
        },
    }


def _operation(method: str, path: str, summary: str, answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": summary,
        "operationId": f"{method.lower()}_{'_'.join(part.strip('{}') for part in path.split('/')[1:])}",
        "parameters": [_parameter(part) for part in path.split("/") if part.startswith("{")],
        "responses": {
            "202" if method == "POST" else "200": {
                "description": "It is under way: look at it where `Location` says." if method == "POST" else summary,
                "content": {"application/json": {"schema": _schema(answer)}},
            },
            "default": {
                "description": "Why not, and what to do.",
                "content": {"application/problem+json": {"schema": {"$ref": _REF.format(name="Problem")}}},
            },
        },
    }
    if method == "GET" and path in _QUERIES:
        name, schema = _QUERIES[path]
        found["parameters"].append({"name": name, "in": "query", "required": False, "schema": schema})
    if method == "POST":
        form = BODIES[path]
        found["requestBody"] = {
            "required": any(one.required for one in msgspec.structs.fields(form)),
            "content": {"application/json": {"schema": _schema(form.__name__)}},
        }
    return found


def _parameter(part: str) -> dict[str, Any]:
    name = part.strip("{}")
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _schema(answer: Any) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"$ref": _REF.format(name=answer)}
    if answer is _ANY:
        return dict(_ANY)
    ((name, items),) = answer.items()
    return {
        "type": "object",
        "required": [name],
        "properties": {name: {"type": "array", "items": _schema(items)}},
    }
