"""What formats raise: a record's fault, a schema's, or the registry's."""

from __future__ import annotations

from checkpoint.errors import Explained


class NotInFormat(Explained, ValueError):
    """Bytes or a value that the format can't take: the record is bad, the registry is well."""


class BadRecord(Explained, ValueError):
    """A record that a source's format cannot decode."""


class SchemaRefused(Explained, ValueError):
    """The registry doesn't take the schema, or doesn't have it where a sink is to find it."""


class RegistryUnavailable(Explained, RuntimeError):
    """The registry didn't answer, or answered that it can't or won't; says nothing about the record."""
