"""Avro with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .avro_values import plain, restorer
from .errors import SchemaRefused
from .json_text import JsonTextFormat
from .serde import Field


class Avro(JsonTextFormat):
    """Records are dicts (or whatever else the schema describes).

    Logical types arrive as values that travel between steps: decimal, date, time, local timestamp and UUID as str
    (`"12.50"`, ISO 8601), timestamps as datetime in UTC. A sink takes these forms and Python's own objects.

    Args:
        registry: its URL, or a dict of settings of `confluent_kafka.schema_registry.SchemaRegistryClient` (`url`,
            `basic.auth.user.info`, `ssl.ca.location` …).
        schema: JSON, as text or as Python objects. At a source the reader's schema, to which records are resolved;
            `None` = each as it was written. At a sink the schema to write; `None` = the newest of the subject.
        subject: where the schema of a topic is registered: `"topic"` (`<topic>-value`, `<topic>-key`), `"record"` (the
            record's full name), `"topic_record"` (`<topic>-<full name>`), or a function of topic, field ("key" or
            "value") and full name.
        register: whether a sink registers its schema where the subject doesn't have it.
        config: further settings of confluent-kafka's serializer or deserializer (`normalize.schemas` …).

    Raises:
        ValueError: an option has a value that it can't have.
        ImportError: the extra `registry` isn't installed.
    """

    name = "Avro"
    schema_type = "AVRO"
    modules = ("fastavro", "confluent_kafka.schema_registry.avro")

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        from fastavro.schema import parse_schema

        try:
            parse_schema(json.loads(self.schema))
        except Exception as error:  # fastavro raises whatever it stumbles over
            raise SchemaRefused(f"the Avro schema is none: {type(error).__name__}: {error}") from error

    def _record_name(self) -> str | None:
        parsed = self._parsed
        if not isinstance(parsed, dict) or "name" not in parsed:
            return None
        name, namespace = parsed["name"], parsed.get("namespace")
        return f"{namespace}.{name}" if namespace and "." not in name else str(name)

    def _deserializer(self, client: Any, field: Field) -> Callable[[bytes, Any], Any]:
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        deserialize = AvroDeserializer(client, self.schema, conf=self._deserializer_config(field))
        return lambda data, context: plain(deserialize(data, context))

    def _serializer(self, client: Any, subject: str, field: Field) -> Callable[[Any, Any], bytes]:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        schema, config = self._schema_to_write(client, subject, field)
        serialize: Callable[[Any, Any], bytes] = AvroSerializer(client, schema, conf=config)
        restore = restorer(json.loads(schema.schema_str))
        if restore is None:
            return serialize
        return lambda value, context: serialize(restore(value), context)
