"""JSON Schema with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from checkpoint.options import named_options
from formats.errors import SchemaRefused
from formats.json_text import JsonTextFormat
from formats.json_values import dumps, loads
from formats.serde import Field


@named_options
class JsonSchema(JsonTextFormat):
    """Values are what JSON has; each is validated against its schema.

    Args:
        registry: as of `Avro`.
        subject: as of `Avro`; the record's name is the schema's `title`.
        register: as of `Avro`.
        config: as of `Avro`; `{"validate": False}` leaves validation out.
        schema: JSON, as text or as a dict. At a source what values are validated against; `None` = the schema that each
            was written with. At a sink the schema to write; `None` = the newest of the subject.

    Raises:
        ValueError: an option has a value that it can't have.
        ImportError: the extra `registry` isn't installed.
    """

    name = "JSON Schema"
    schema_type = "JSON"
    modules = ("jsonschema", "confluent_kafka.schema_registry.json_schema")

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for

        try:
            parsed = json.loads(self.schema)
            validator_for(parsed).check_schema(parsed)
        except (ValueError, SchemaError) as error:
            raise SchemaRefused(f"the JSON schema is not valid: {error}") from error

    def _record_name(self) -> str | None:
        parsed = self._parsed
        return parsed.get("title") if isinstance(parsed, dict) else None

    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        deserialize: Callable[[bytes, Any], Any] = JSONDeserializer(
            self.schema,
            schema_registry_client=client,
            conf=self._deserializer_config(field),
            json_decode=loads,
        )
        return deserialize

    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        schema, config = self._schema_to_write(client, subject, field)
        serialize: Callable[[Any, Any], bytes] = JSONSerializer(schema, client, conf=config, json_encode=dumps)
        return serialize
