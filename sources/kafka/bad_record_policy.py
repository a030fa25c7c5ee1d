"""Which policy for bad records a source has."""

from __future__ import annotations

from sources.kafka.bad_records import BadRecords, FailOnBadRecords, SkipBadRecords
from sources.kafka.dead_letters import DeadLetters
from sources.kafka.options import KafkaOptions
from sources.source import SourceContext


def policy(options: KafkaOptions, ctx: SourceContext) -> BadRecords:
    """What the options say, for one subtask."""
    if options.dead_letters is not None:
        return DeadLetters(options, ctx)
    if options.on_bad_record == "skip":
        return SkipBadRecords(str(options.value_format), ctx.metrics)
    return FailOnBadRecords(str(options.value_format))
