"""JSON Schema with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from .errors import SchemaRefused
from .serde import Field, RegistryFormat, Subject


class JsonSchema(RegistryFormat):
    """Values are what JSON has; each is validated against its schema.

    Args:
        registry, subject, register, config: as of `Avro`; the record's name is the schema's `title`. The `config`
            `{"validate": False}` leaves validation out.
        schema: JSON, as text or as a dict. At a source what values are validated against; `None` = the schema that each
            was written with. At a sink the schema to write; `None` = the newest of the subject.

    Raises:
        ValueError: an option has a value that it can't have.
        ImportError: the extra `registry` isn't installed.
    """

    name = "JSON Schema"
    modules = ("jsonschema", "confluent_kafka.schema_registry.json_schema")

    def __init__(
        self,
        registry: str | Mapping[str, Any],
        schema: str | Mapping[str, Any] | None = None,
        subject: Subject | Callable[[str, Field, str | None], str] = "topic",
        register: bool = True,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(registry, subject, register, config)
        if schema is not None and not isinstance(schema, str | Mapping):
            raise ValueError(f"schema must be a JSON schema, as text or a dict, not {schema!r}")
        self.schema = schema if schema is None or isinstance(schema, str) else json.dumps(schema)

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        try:
            parsed = json.loads(self.schema)
            validator_for(parsed).check_schema(parsed)
        except (ValueError, SchemaError) as error:
            raise SchemaRefused(f"the JSON schema is none: {error}") from error

    def _schema(self) -> Any:
        from confluent_kafka.schema_registry import Schema

        return None if self.schema is None else Schema(self.schema, "JSON")

    def _record_name(self) -> str | None:
        parsed = json.loads(self.schema) if self.schema is not None else None
        return parsed.get("title") if isinstance(parsed, dict) else None

    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        deserialize: Callable[[bytes, Any], Any] = JSONDeserializer(
            self.schema,
            schema_registry_client=client,
            conf=self._deserializer_config(field),
            json_decode=orjson.loads,
        )
        return deserialize

    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        schema, config = self._schema(), self._serializer_config(field)
        if schema is None:
            schema, config = self._newest(client, subject), {**config, "auto.register.schemas": False}
        serialize: Callable[[Any, Any], bytes] = JSONSerializer(schema, client, conf=config, json_encode=orjson.dumps)
        return serialize
