"""What the registry formats have in common whose schema is JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from formats.serde import Field, RegistryFormat, Subject


class JsonTextFormat(RegistryFormat):
    """The schema as JSON text, if there is one: the reader's at a source, the one that a sink writes with."""

    schema_type: str
    """As registries call it."""

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
            raise ValueError(f"schema must be of the format {self.name}, as JSON text or a dict, not {schema!r}")
        self.schema = schema if schema is None or isinstance(schema, str) else json.dumps(schema)

    @property
    def _parsed(self) -> Any:
        return None if self.schema is None else json.loads(self.schema)

    def _schema(self) -> Any:
        from confluent_kafka.schema_registry import Schema

        return None if self.schema is None else Schema(self.schema, self.schema_type)

    def _schema_to_write(self, client: Any, subject: str, field: Field) -> tuple[Any, dict[str, Any]]:
        """And the serializer's settings with it."""
        schema, config = self._schema(), self._serializer_config(field)
        if schema is not None:
            return schema, config
        return self._newest(client, subject), {**config, "auto.register.schemas": False}
