"""What users subclass where a request needs a client that is opened and closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AsyncFunction:
    """What `map_async` calls, with a client of its own: one copy works in each subtask, in the subtask's event loop.

        class Geocode(AsyncFunction):
            async def open(self):
                self.session = aiohttp.ClientSession()

            async def __call__(self, order):
                async with self.session.get(URL, params={"q": order["address"]}) as response:
                    return {**order, "place": await response.json()}

            async def close(self):
                await self.session.close()

    An instance is pickled on the driver, so sessions and pools belong into `open`.
    """

    async def open(self) -> None:
        """Called once in the subtask, before the first request."""

    async def __call__(self, value: Any) -> Any:
        """What goes on instead of the record. With `batch_size` it gets a list of records and returns a list with as
        many, in the same order; an exception in it is how the request for that record failed."""
        raise NotImplementedError(f"{type(self).__name__} must implement async def __call__(self, value)")

    async def close(self) -> None:
        """Release what `open` made. Called once, after all requests have ended or were cancelled, also after a
        failure."""


class Counting:
    """A function that has metrics of its own, beside those of its requests."""

    def counts(self) -> Mapping[str, float]:
        """Totals by name (see `checkpoint.metrics`); called by another thread than the event loop's."""
        raise NotImplementedError
