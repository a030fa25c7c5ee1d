"""Errors of keyed state."""

from __future__ import annotations


class StateAccessError(RuntimeError):
    """State was used where there is no current key, or declared or assigned in a way that would lose it."""


class StateRestoreError(ValueError):
    """A snapshot doesn't fit the operator that it is restored into."""
