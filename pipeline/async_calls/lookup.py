"""`join_lookup`: each record with what a service has for its key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from checkpoint.codec import copied, encode_key
from checkpoint.counted import counted
from pipeline.async_calls.cache import MISSING, LookupCache, Remembered
from pipeline.async_calls.function import AsyncFunction, Counting
from pipeline.async_calls.options import NOTHING
from pipeline.partitioners import KeySelector

How: TypeAlias = Literal["inner", "left"]
HOWS: Final = ("inner", "left")


class LookupJoin(AsyncFunction, Counting):
    """What `map_async` calls for a lookup join. A key that is being asked for is asked for once, by however many
    records; what was found is remembered for a while."""

    def __init__(
        self,
        lookup: Callable[..., Awaitable[Any]],
        key: str | int | Callable[[Any], Any],
        how: How,
        cache: LookupCache | None,
        select: Callable[[Any, Any], Any] | None,
        batched: bool,
    ) -> None:
        """
        Args:
            lookup: given a key, or a list of different keys, what there is for it; `None` = nothing, an exception = it
                failed for that key.
            select: makes the result of a record and what was found; `None` = a dict of both.
            batched: it is called with lists of records.
        """
        self.lookup = lookup
        self.key = key
        self.how = how
        self.cache = cache
        self.select = select
        self.batched = batched
        self._hits = 0
        self._misses = 0

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._key_of = KeySelector(self.key).compile()
        self._remembered: Remembered | None = None if self.cache is None else self.cache.make(self._loop.time)
        self._asked: dict[bytes, asyncio.Future[Any]] = {}
        """Keys that are being asked for, as bytes: 1, 1.0 and True are different ones."""
        open_ = getattr(self.lookup, "open", None)
        if open_ is not None:
            await open_()

    async def close(self) -> None:
        close = getattr(self.lookup, "close", None)
        if close is not None:
            await close()

    async def __call__(self, value: Any) -> Any:
        if not self.batched:
            (found,) = await self._find([self._key(value)])
            return self._joined(value, found)
        keys = [_or_error(self._key, one) for one in value]
        answers = iter(await self._find([key for key in keys if not isinstance(key, Exception)]))
        found = [key if isinstance(key, Exception) else next(answers) for key in keys]
        return [_or_error(self._joined, one, right) for one, right in zip(value, found, strict=True)]

    def counts(self) -> Mapping[str, float]:
        return {"lookupCacheHits": self._hits, "lookupCacheMisses": self._misses}

    def _key(self, value: Any) -> tuple[bytes, Any]:
        """The record's key, encoded and as it is."""
        key = self._key_of(value)
        return encode_key(key), key

    def _joined(self, left: Any, right: Any) -> Any:
        if isinstance(right, Exception):
            raise right
        if right is None and self.how == "inner":
            return NOTHING
        if self.select is None:
            return {"left": left, "right": right}
        return self.select(left, copied(right))

    async def _find(self, keys: Sequence[tuple[bytes, Any]]) -> list[Any]:
        """What there is for each key; an exception where the lookup gave one."""
        found: dict[bytes, Any] = {}
        others: dict[bytes, asyncio.Future[Any]] = {}
        mine: dict[bytes, Any] = {}
        """To be asked for, and the keys themselves."""
        for one, key in keys:
            if one in found or one in others or one in mine:
                continue
            known = MISSING if self._remembered is None else self._remembered.get(one)
            if known is not MISSING:
                self._hits += 1
                found[one] = known
            elif (asked := self._asked.get(one)) is not None:
                self._hits += 1
                others[one] = asked
            else:
                self._misses += 1
                mine[one] = key
        if mine:
            found.update(await self._ask(mine))
        for one, asked in others.items():
            try:
                # Shielded: who asked goes on, though this record's time is over.
                found[one] = await asyncio.shield(asked)
            except _AskerGone:
                (found[one],) = await self._find([(one, dict(keys)[one])])
        return [found[one] for one, _ in keys]

    async def _ask(self, mine: Mapping[bytes, Any]) -> dict[bytes, Any]:
        futures = {one: self._loop.create_future() for one in mine}
        self._asked.update(futures)
        try:
            keys = list(mine.values())
            answers = await self._answers(keys)
            found = dict(zip(mine, answers, strict=True))
        except BaseException as error:
            for future in futures.values():
                future.set_exception(error if isinstance(error, Exception) else _AskerGone())
                future.exception()  # whether anybody else waits for it or not
            raise
        finally:
            for one in mine:
                del self._asked[one]
        for one, answer in found.items():
            if self._remembered is not None and not isinstance(answer, Exception):
                self._remembered.put(one, answer)
            futures[one].set_result(answer)
        return found

    async def _answers(self, keys: list[Any]) -> list[Any]:
        if not self.batched:
            return [await self.lookup(keys[0])]
        answers = await self.lookup(keys)
        if isinstance(answers, Mapping):
            return [answers.get(key) for key in keys]
        if not isinstance(answers, list | tuple) or len(answers) != len(keys):
            what = (
                counted(len(answers), "answer") if isinstance(answers, list | tuple) else f"a {type(answers).__name__}"
            )
            raise TypeError(
                f"the lookup was asked for {counted(len(keys), 'key')} and returned {what}: with batch_size it returns "
                "a list with what there is for each key, in the same order, or a dict by key"
            )
        return list(answers)


def _or_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or the exception that it raises: how that record of a batch has failed."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


class _AskerGone(Exception):
    """The record that asked for a key was cancelled, since its time was over: those that waited with it ask
    themselves."""
