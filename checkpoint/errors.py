"""Failures that the runtime treats in a way of their own, wherever they are raised."""

from __future__ import annotations


class Explained(Exception):
    """The message says what is wrong, where, and what to do about it: where in Weir it was raised would help nobody, so
    it is told without a traceback, unless that has code of the user's."""


class PermanentFailure(Exception):
    """No restart can help: the job ends at once, whatever its restart strategy. The message says what to do."""


class NotOfTheRecord(Exception):
    """Failed while a record was processed, and not because of it: a step's `on_error` leaves it alone, and the attempt
    fails."""
