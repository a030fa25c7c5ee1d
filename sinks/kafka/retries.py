"""Which trouble with Kafka a committer tries again after, for how long, and what it says when it gives up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from checkpoint.counted import counted
from checkpoint.outage import Outage
from sinks.kafka.client_errors import is_fenced, is_hopeless, is_outage, is_refusal, reason
from sinks.kafka.committer_options import CommitterOptions
from sinks.kafka.errors import CommitFailed
from sinks.kafka.permissions import REFUSALS, to_grant
from sinks.sink import CommitterContext

_log = logging.getLogger(f"weir.{__name__}")
_T = TypeVar("_T")

RETRY_SECONDS: Final = 60.0
"""For so long one call of `open` or `commit` tries again whatever isn't an outage."""
_MAX_FENCED: Final = 3
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 2.0
"""Seconds between two tries."""


class Retries:
    """Repeats a step of a committer as long as that may help. Brokers that are away are waited for."""

    def __init__(
        self,
        options: CommitterOptions,
        ctx: CommitterContext,
        marker_topic: str,
        discard: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            marker_topic: has the writer's marker.
            discard: ends the producer in use after any trouble; its argument says whether to abort an open transaction,
                since no other producer comes to do it.
        """
        self._options = options
        self._ctx = ctx
        self._marker_topic = marker_topic
        self._discard = discard
        self._clock = clock
        self._sleep = sleep
        what = f"the Kafka brokers at {options.servers} to commit to (sink {ctx.sink_id!r})"
        self.outage = Outage(ctx.waiting, what, options.outage_timeout, clock)

    def run(self, step: Callable[[], _T], what: str) -> _T:
        """What the step returns.

        Args:
            what: the step does, for messages.

        Raises:
            CommitFailed: another try doesn't help, or has not helped within `RETRY_SECONDS`.
            Fenced: another driver owns the job.
            Exception: anything else than trouble with Kafka that the step raised.
        """
        deadline: float | None = None
        """For trouble that is no outage."""
        wait, fenced = _FIRST_WAIT, 0
        while True:
            began = self._clock()
            try:
                result = step()
                self.outage.over()
                return result
            except KafkaException as error:
                fenced += is_fenced(error)
                if is_outage(error):
                    final = not self.outage.away(began)
                    deadline, fenced = None, 0  # what brokers find when they are back has another reason
                elif is_refusal(error):
                    final = not self.outage.refused()
                else:
                    now = self._clock()
                    deadline = now + RETRY_SECONDS if deadline is None else deadline
                    final = is_hopeless(error) or fenced > _MAX_FENCED or now >= deadline
                self._discard(final)
                self._ctx.check_owner()
                if final:
                    self.outage.over()
                    raise CommitFailed(self._explain(error, what, fenced)) from error
                _log.warning("%s: trying again with a new producer after %s", self._options.name, reason(error))
            except BaseException:
                self._discard(True)
                raise
            self._sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _explain(self, error: KafkaException, what: str, fenced: int) -> str:
        options = self._options
        if fenced > _MAX_FENCED:
            advice = (
                f"other producers used transactional id {options.name!r} meanwhile, {counted(fenced, 'time')}. Two "
                "jobs must not use one transactional_id_prefix and sink id; or transactions take longer than "
                "transaction.timeout.ms"
            )
        elif is_refusal(error):
            advice = "the brokers don't let this client in: correct the user, password or certificates in config"
        elif is_hopeless(error):
            code = error.args[0].code()
            advice = to_grant(code, options.name, self._marker_topic) if code in REFUSALS else "correct config"
        else:
            patience = RETRY_SECONDS if options.outage_timeout is None else options.outage_timeout
            advice = f"tried for {patience:g} s. Check that the brokers at {options.servers} run and can be reached"
        return f"sink {self._ctx.sink_id!r} could not {what} writer {self._ctx.writer}: {reason(error)}; {advice}"
