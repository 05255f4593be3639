"""Limits, pauses and breakers: `hf.limits`."""

from __future__ import annotations

import builtins
from datetime import timedelta
from types import EllipsisType

from holdfast.client.operation import Noun, operation
from holdfast.errors import UsageError
from holdfast.model.limit import LimitInfo
from holdfast.store.call import Call
from holdfast.store.limits import LimitCalls

Amount = float | None | EllipsisType
Whole = int | None | EllipsisType


class Limits(Noun):
    """`hf.limits`. A key is that of a limit, or queue:NAME, task:NAME, tenant:NAME."""

    @property
    def calls(self) -> LimitCalls:
        return LimitCalls(self._hf.settings.schema)

    def _list(self, prefix: str = "", *, busy: bool = False, limit: int = 1000) -> Call[builtins.list[LimitInfo]]:
        """Return keys that have a limit or were claimed under, by key; with busy, those that run jobs or hold some
        back."""
        return self.calls.limits(prefix, busy=busy, limit=limit)

    list, alist = operation(_list)

    def _set(
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
    ) -> Call[int]:
        """Change the limit of a key, or with a template ("domain:{domain}") of all its keys; at once, until it is
        cleared. None restores the value of the code; omitted values stay. Return the number of keys it applies to."""
        given = {
            "concurrency": concurrency,
            "rate": rate,
            "per": per,
            "burst": burst,
            "breaker_after": breaker_after,
            "breaker_pause": breaker_pause,
            "breaker_cap": breaker_cap,
            "weight": weight,
        }
        change = {name: value for name, value in given.items() if not isinstance(value, EllipsisType)}
        if not change:
            raise UsageError(f"nothing to change; give a value, as in limits.set({key!r}, concurrency=4)")
        return self.calls.set_limit(key, change, by)

    set, aset = operation(_set)

    def _clear(self, key: str) -> Call[int]:
        """Remove what operators have set for a key or a template. Return the number of keys, 0 if nothing was set."""
        return self.calls.clear_limit(key)

    clear, aclear = operation(_clear)

    def _pause(
        self, key: str, *, reason: str | None = None, for_: float | timedelta | None = None, by: str | None = None
    ) -> Call[bool]:
        """Start no more jobs under a key, for some seconds or until it is resumed. Running jobs continue. Return
        whether it was not paused before."""
        return self.calls.pause(key, by, reason, _seconds(for_))

    pause, apause = operation(_pause)

    def _resume(self, key: str) -> Call[bool]:
        """Resume a paused key. Return whether it was paused."""
        return self.calls.resume(key)

    resume, aresume = operation(_resume)

    def _reset_breaker(self, key: str) -> Call[bool]:
        """Close the breaker of a key and forget its failures. Return whether it was open or half open."""
        return self.calls.reset_breaker(key)

    reset_breaker, areset_breaker = operation(_reset_breaker)


def _seconds(length: float | timedelta | None) -> float | None:
    return length.total_seconds() if isinstance(length, timedelta) else length
