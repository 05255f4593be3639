"""Flow control from code: list and change limits, pause and resume keys, explain why a job does not run."""

from __future__ import annotations

from datetime import timedelta
from types import EllipsisType
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.model.flow import LimitInfo, Why
from holdfast.model.job import parse_id
from holdfast.store.calls import Call
from holdfast.store.flow import FlowCalls

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.pools import AsyncPool, SyncPool

Amount = float | None | EllipsisType
Whole = int | None | EllipsisType


class FlowControl:
    """Mixin of Holdfast. Keys are those of limits, or queue:NAME, task:NAME, tenant:NAME."""

    settings: Settings
    if TYPE_CHECKING:

        @property
        def sync_pool(self) -> SyncPool: ...
        @property
        def async_pool(self) -> AsyncPool: ...

    @property
    def flow(self) -> FlowCalls:
        return FlowCalls(self.settings.schema)

    def limits(self, prefix: str = "", *, busy: bool = False, limit: int = 1000) -> list[LimitInfo]:
        """Return the keys with limits or claimed jobs, by key; with busy, those that run or throttle jobs."""
        return self.sync_pool.run(self.flow.limits(prefix, busy=busy, limit=limit))

    async def alimits(self, prefix: str = "", *, busy: bool = False, limit: int = 1000) -> list[LimitInfo]:
        """Return the keys with limits or claimed jobs, by key; with busy, those that run or throttle jobs."""
        return await self.async_pool.run(self.flow.limits(prefix, busy=busy, limit=limit))

    def set_limit(
        self,
        key: str,
        *,
        concurrency: Whole = ...,
        rate: Amount = ...,
        per: Amount = ...,
        burst: Amount = ...,
        breaker_after: Whole = ...,
        breaker_pause: Amount = ...,
        breaker_cap: Amount = ...,
        weight: Amount = ...,
        by: str | None = None,
    ) -> int:
        """Override the limits of a key, or with a template ("domain:{domain}") of all its keys, at once and until
        cleared. None restores the code's value; values not given stay. Return the number of keys."""
        return self.sync_pool.run(self._change(
            key, by, concurrency=concurrency, rate=rate, per=per, burst=burst, breaker_after=breaker_after,
            breaker_pause=breaker_pause, breaker_cap=breaker_cap, weight=weight,
        ))  # fmt: skip

    async def aset_limit(
        self,
        key: str,
        *,
        concurrency: Whole = ...,
        rate: Amount = ...,
        per: Amount = ...,
        burst: Amount = ...,
        breaker_after: Whole = ...,
        breaker_pause: Amount = ...,
        breaker_cap: Amount = ...,
        weight: Amount = ...,
        by: str | None = None,
    ) -> int:
        """Override the limits of a key, or with a template ("domain:{domain}") of all its keys, at once and until
        cleared. None restores the code's value; values not given stay. Return the number of keys."""
        return await self.async_pool.run(self._change(
            key, by, concurrency=concurrency, rate=rate, per=per, burst=burst, breaker_after=breaker_after,
            breaker_pause=breaker_pause, breaker_cap=breaker_cap, weight=weight,
        ))  # fmt: skip

    def _change(self, key: str, by: str | None, **given: Amount) -> Call[int]:
        change = {name: value for name, value in given.items() if not isinstance(value, EllipsisType)}
        if not change:
            raise UsageError(f"nothing to change; give a value, as in set_limit({key!r}, concurrency=4)")
        return self.flow.set_limit(key, change, by)

    def clear_limit(self, key: str) -> int:
        """Remove the overrides of a key or a template. Return the number of keys, 0 if there were none."""
        return self.sync_pool.run(self.flow.clear_limit(key))

    async def aclear_limit(self, key: str) -> int:
        """Remove the overrides of a key or a template. Return the number of keys, 0 if there were none."""
        return await self.async_pool.run(self.flow.clear_limit(key))

    def pause(
        self, key: str, *, reason: str | None = None, for_: float | timedelta | None = None, by: str | None = None
    ) -> bool:
        """Pause a key, for so many seconds or until it is resumed; running jobs go on. Return False if it was already
        paused."""
        return self.sync_pool.run(self.flow.pause(key, by, reason, _seconds(for_)))

    async def apause(
        self, key: str, *, reason: str | None = None, for_: float | timedelta | None = None, by: str | None = None
    ) -> bool:
        """Pause a key, for so many seconds or until it is resumed; running jobs go on. Return False if it was already
        paused."""
        return await self.async_pool.run(self.flow.pause(key, by, reason, _seconds(for_)))

    def resume(self, key: str) -> bool:
        """Resume a paused key. Return whether it was paused."""
        return self.sync_pool.run(self.flow.resume(key))

    async def aresume(self, key: str) -> bool:
        """Resume a paused key. Return whether it was paused."""
        return await self.async_pool.run(self.flow.resume(key))

    def reset_breaker(self, key: str) -> bool:
        """Close a key's breaker and clear its failures. Return whether it was open or half-open."""
        return self.sync_pool.run(self.flow.reset_breaker(key))

    async def areset_breaker(self, key: str) -> bool:
        """Close a key's breaker and clear its failures. Return whether it was open or half-open."""
        return await self.async_pool.run(self.flow.reset_breaker(key))

    def why(self, job_id: str) -> Why:
        """Explain where a job is and why it does not run: one sentence, and the reasons in detail."""
        return self.sync_pool.run(self.flow.why(parse_id(job_id)))

    async def awhy(self, job_id: str) -> Why:
        """Explain where a job is and why it does not run: one sentence, and the reasons in detail."""
        return await self.async_pool.run(self.flow.why(parse_id(job_id)))


def _seconds(length: float | timedelta | None) -> float | None:
    return length.total_seconds() if isinstance(length, timedelta) else length
