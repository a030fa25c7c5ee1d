"""Which policy for bad records a source has."""

from __future__ import annotations

from ..source import SourceContext
from .bad_records import BadRecords, FailOnBadRecords, SkipBadRecords
from .dead_letters import DeadLetters
from .options import KafkaOptions


def policy(options: KafkaOptions, ctx: SourceContext) -> BadRecords:
    """What the options say, for one subtask."""
    if options.dead_letters is not None:
        return DeadLetters(options, ctx)
    if options.on_bad_record == "skip":
        return SkipBadRecords(str(options.value_format), ctx.metrics)
    return FailOnBadRecords(str(options.value_format))
