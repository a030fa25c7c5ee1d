"""The connection to a schema registry: settings that travel, clients that are made where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from formats.errors import RegistryUnavailable

_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 200}
"""The client's own would wait for an answer without end."""
_UNKNOWN_SCHEMA: Final = 40403
_UNKNOWN: Final = (40401, 40402, _UNKNOWN_SCHEMA)
"""Error codes for a subject, a version and a schema that don't exist. A 404 without one comes from somebody else."""
_HTTP_CLIENTS: Final = ("httpx", "httpx2", "httpcore", "httpcore2")

T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """Settings of `confluent_kafka.schema_registry.SchemaRegistryClient`, which must name an `url`."""

    settings: Mapping[str, Any] = field(repr=False)
    """They may hold passwords."""

    @classmethod
    def of(cls, registry: object) -> Registry:
        """From a URL (several, separated by commas), or a dict of settings.

        Raises:
            ValueError: it is neither.
        """
        settings = {"url": registry} if isinstance(registry, str) else registry
        url = settings.get("url") if isinstance(settings, Mapping) else None
        if not isinstance(settings, Mapping) or not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError(
                'registry must be a URL such as "http://localhost:8081", or a dict of the settings of '
                'confluent_kafka\'s SchemaRegistryClient with a "url"'
            )
        return cls({**_DEFAULTS, **settings})

    @property
    def url(self) -> str:
        """Without the password that it may hold."""
        return ",".join(_without_user(url.strip()) for url in str(self.settings["url"]).split(","))

    def client(self) -> Any:
        """A `SchemaRegistryClient`; connects at the first request.

        Raises:
            ValueError: a setting is unknown or wrong.
        """
        from confluent_kafka.schema_registry import SchemaRegistryClient

        try:
            return SchemaRegistryClient(dict(self.settings))
        except (ValueError, TypeError, OSError) as error:
            raise ValueError(f"registry {self.url}: {error}") from error

    def ask(self, question: Callable[[], T]) -> T:
        """The answer to `question`, a call of a client.

        Raises:
            RegistryUnavailable: no answer, or one that says nothing about what was asked for.
            SchemaRegistryError: the registry doesn't know it, or doesn't take it.
        """
        try:
            return question()
        except Exception as error:
            if (trouble := self.trouble(error)) is not None:
                raise trouble from error
            raise

    def trouble(self, error: Exception) -> RegistryUnavailable | None:
        """What `error` says about the registry itself; `None` if it is about what it was asked for."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        if isinstance(error, SchemaRegistryError):
            if error.error_code in _UNKNOWN or error.http_status_code in (409, 422):
                return None
            return RegistryUnavailable(f"the schema registry at {self.url} refuses: {error}. {_advice(error)}")
        if isinstance(error, OAuthTokenError | OSError) or _of_http_client(error):
            return RegistryUnavailable(
                f"the schema registry at {self.url} doesn't answer: {type(error).__name__}: {error}. "
                "Check that it runs and that this machine reaches it"
            )
        return None


def unknown_schema(error: Exception) -> bool:
    """Whether the registry says that it has no schema of this id."""
    return getattr(error, "error_code", None) == _UNKNOWN_SCHEMA


def unknown(error: Exception) -> bool:
    """Whether the registry says that it has no such subject, version or schema."""
    return getattr(error, "error_code", None) in _UNKNOWN


def require(format_name: str, *modules: str) -> None:
    """
    Raises:
        ImportError: a package that the format needs isn't installed; says how to get it.
    """
    for module in ("confluent_kafka.schema_registry", *modules):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{format_name} needs packages that aren't installed ({error}). Install weir with its extra "
                "\"registry\": pip install 'weir-streams[registry]'. The workers need them, too"
            ) from error


def _advice(error: Any) -> str:
    if error.http_status_code in (401, 403):
        return 'Check the credentials in registry={…} ("basic.auth.user.info") and what they permit'
    if error.http_status_code == 404:
        return "Check the URL: what answers there is no schema registry"
    return "It is tried again when the job restarts"


def _of_http_client(error: Exception) -> bool:
    return any(base.__module__.partition(".")[0] in _HTTP_CLIENTS for base in type(error).__mro__)


def _without_user(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"
