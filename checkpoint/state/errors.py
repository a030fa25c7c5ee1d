"""Errors of keyed state."""

from __future__ import annotations

from checkpoint.codec.errors import EncodingError
from checkpoint.errors import Explained, NotOfTheRecord, PermanentFailure


class StateAccessError(Explained, RuntimeError):
    """State was used where there is no current key, or declared or assigned in a way that would lose it."""


class WrongDeclaration(StateAccessError, ValueError):
    """State was declared with an option that has a value that it can't have."""


class TooManyEntries(ValueError):
    """To look at what a key has would take too long, since there is more than was allowed."""


class StateRestoreError(PermanentFailure, ValueError):
    """A snapshot doesn't fit the operator that it is restored into. It won't at the next attempt either."""


class StateStorageError(NotOfTheRecord, RuntimeError):
    """What keeps state outside of memory fails."""


class StateNotWritten(NotOfTheRecord, EncodingError):
    """A value of another key than the current one can't be kept."""
