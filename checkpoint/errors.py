"""Failures that the runtime treats in a way of their own, wherever they are raised."""

from __future__ import annotations


class PermanentFailure(Exception):
    """No restart can help: the job ends at once, whatever its restart strategy. The message says what to do."""
