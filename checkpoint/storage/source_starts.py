"""What a start has settled for sources that no checkpoint knows yet: where they begin and end.

It is part of the owner's record (`checkpoint.storage.ownership`), so it is durable before the first record is read. A
start that finds no checkpoint with the source goes on from there: what the earlier run has read and not delivered would
be passed over otherwise.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True)
class SourceStart:
    """Where one source begins."""

    kind: str
    """The class of its definition."""
    settings: Mapping[str, str]
    """Salted hashes, by name, of the settings that it depends on: a setting may be a secret."""
    salt: str
    at: float
    """When it was first settled: seconds since 1970."""
    resolution: bytes | None = None
    """What was settled (`checkpoint.codec.encode`); `None`: nothing had to be, or `lost` has the reason."""
    lost: str | None = None

    def differences(self, kind: str, settings: Mapping[str, Any]) -> list[str]:
        """Names of the settings that are others now; the first one is "class" if all of it is something else."""
        if kind != self.kind:
            return ["class"]
        now = hashed(settings, self.salt)
        return sorted(name for name in {*now, *self.settings} if now.get(name) != self.settings.get(name))

    def to_wire(self) -> dict[str, Any]:
        packed = None if self.resolution is None else base64.b64encode(zlib.compress(self.resolution, 1)).decode()
        return {
            "kind": self.kind,
            "settings": dict(self.settings),
            "salt": self.salt,
            "at": self.at,
            "resolution": packed,
            "lost": self.lost,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SourceStart:
        """
        Raises:
            KeyError, TypeError, ValueError: it isn't one.
        """
        packed = wire["resolution"]
        try:
            resolution = None if packed is None else zlib.decompress(base64.b64decode(packed, validate=True))
        except zlib.error as error:
            raise ValueError(f"what a source's start has settled is damaged: {error}") from error
        return cls(wire["kind"], wire["settings"], wire["salt"], wire["at"], resolution, wire["lost"])


def hashed(settings: Mapping[str, Any], salt: str) -> dict[str, str]:
    """
    Args:
        salt: hexadecimal digits.
    """
    key = bytes.fromhex(salt)
    return {
        name: hashlib.blake2b(canonical(value).encode("utf-8", "surrogatepass"), digest_size=16, key=key).hexdigest()
        for name, value in settings.items()
    }


def canonical(value: Any, depth: int = 0) -> str:
    """A text that equal values share in every process, and that different ones don't, as far as can be told: of objects
    it has the class and the attributes, of functions the name."""
    kind = type(value)
    name = kind.__qualname__  # a script's module has several names
    if depth > _DEEPEST:
        return name
    deeper = depth + 1
    if value is None or kind in (bool, int, float, str, bytes, bytearray, complex):
        return f"{name}:{value!r}"
    if isinstance(value, enum.Enum):
        return f"{name}:{value.name}"
    if isinstance(value, Mapping):
        items = sorted((canonical(k, deeper), canonical(v, deeper)) for k, v in value.items())
        return f"{name}{{{', '.join(f'{k}={v}' for k, v in items)}}}"
    if isinstance(value, set | frozenset):
        return f"{name}{{{', '.join(sorted(canonical(item, deeper) for item in value))}}}"
    if isinstance(value, list | tuple):
        return f"{name}[{', '.join(canonical(item, deeper) for item in value)}]"
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__qualname__', name)}"
    if dataclasses.is_dataclass(value):
        return f"{name}({canonical({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, deeper)})"
    attributes = getattr(value, "__dict__", None)
    if attributes is not None:
        return f"{name}({canonical(attributes, deeper)})"
    text = repr(value)
    return name if f"{id(value):x}" in text else f"{name}:{text}"
