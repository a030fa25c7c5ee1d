"""What a subtask has that begins with an async step, in a job and in a harness: controls wait in the step's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpoint.elements import ChannelName, InOrder
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.steps.async_calls import AsyncCalls, Control, EndOfRestored

if TYPE_CHECKING:

    class _Subtask:
        def _take_control(self, channel: ChannelName, element: InOrder, restored: bool = False) -> None: ...

        def _end_restored(self) -> None: ...

        def _leave_records(self) -> None: ...

else:
    _Subtask = object


class WaitsInQueue(_Subtask):
    """Comes in front of the class whose methods it puts off.

    Watermarks, idle statuses, restore barriers and the ends of channels and of what was restored wait behind the
    records in front of them; to all else it is as if those records were not taken from the input yet.
    """

    _calls: AsyncCalls

    def _hand_on_until(self, mailbox: Mailbox) -> None:
        """Hand on what is next in the queue, until the mailbox interrupts."""
        control = self._calls.hand_on(lambda: mailbox.interrupt)
        self._leave_records()
        if isinstance(control, EndOfRestored):
            super()._end_restored()
        elif control is not None:
            super()._take_control(control.channel, control.element, control.restored)

    def _end_restored(self) -> None:
        # What comes from the channels now waits in the queue behind it.
        if self._calls.queue:
            self._calls.wait(EndOfRestored())
        else:
            super()._end_restored()

    def _take_control(self, channel: ChannelName, element: InOrder, restored: bool = False) -> None:
        if self._calls.queue:
            self._calls.wait(Control(channel, element, restored))
        else:
            super()._take_control(channel, element, restored)
