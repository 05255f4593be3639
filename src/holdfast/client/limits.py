"""Limits, pauses and breakers: `hf.limits`."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UsageError, nearest
from holdfast.model import check
from holdfast.model.limit import BreakerEvent, LimitInfo, LimitNumbers
from holdfast.store.call import Call, Row
from holdfast.store.limits import LimitCalls


class Limits(Noun):
    """`hf.limits`. A key is that of a limit, or queue:NAME, task:NAME, tenant:NAME."""

    @property
    def calls(self) -> LimitCalls:
        return LimitCalls(self._hf.settings.schema)

    def _list(
        self, prefix: str = "", *, busy: bool = False, limit: int = 1000, busiest_first: bool = False
    ) -> Call[builtins.list[LimitInfo]]:
        """Return keys that have a limit or were claimed under, by key; with busy, those that run jobs or hold some
        back; with busiest_first, those first under which nothing can start."""
        return self.calls.list(prefix, busy=busy, limit=limit, busiest_first=busiest_first)

    list, alist = operation(_list)

    def _get(self, key: str) -> Steps[LimitInfo | None]:
        """Return a key that has a limit, was paused or was claimed under; otherwise None."""
        found: Sequence[LimitInfo] = yield self.calls.read([key])
        return found[0] if found else None

    get, aget = operation(_get)

    def _breaker_history(self, key: str, *, limit: int = 50) -> Call[builtins.list[BreakerEvent]]:
        """Return when the breaker of a key opened, opened again and closed, newest first; the last 50 are kept, for 30
        days."""
        return self.calls.breaker_history(key, limit)

    breaker_history, abreaker_history = operation(_breaker_history)

    def _rules(self) -> Call[builtins.list[Row]]:
        """Return the limits that code declares, by key template, with operators' overrides."""
        return self.calls.rules()

    rules, arules = operation(_rules)

    def _reconcile(self, *, repair: bool = False) -> Call[builtins.list[Row]]:
        """Return the keys whose count of running jobs is wrong; there should be none. With repair, correct them."""
        return self.calls.reconcile(repair=repair)

    reconcile, areconcile = operation(_reconcile)

    def _warning(self, key: str) -> Steps[str | None]:
        """Return None for a key that is known, or what is wrong with it and which key may have been meant. Call it
        before a change. Tenants are recorded in jobs only, and templates are checked when they are set."""
        declared = [limit.pattern for limit in self._hf.registry.limits]
        kind, _, name = key.partition(":")
        if kind == "tenant" or "{" in key or (yield self.calls.is_known(key, declared)):
            return None
        known = yield from self._names()
        if kind in known:
            near = nearest(name, known[kind])
            hint = f"; did you mean {kind}:{near}?" if near else ""
            return None if name in known[kind] else f"no worker has registered {key} yet{hint}"
        rules = [rule["template"] for rule in (yield self.calls.rules())]
        meant = yield from self._meant(key, known, rules)
        keys = ", ".join(["queue:NAME", "task:NAME", "tenant:NAME", *rules[:10]])
        hint = f"did you mean {meant}?" if meant else f"keys are {keys}"
        return f"{key} matches no declared limit, and no job has been claimed under it yet; {hint}"

    warning, awarning = operation(_warning)

    def _names(self) -> Steps[dict[str, set[str]]]:
        """Return the queues and tasks that the database or this application knows."""
        tasks = self._hf.registry.tasks
        queues = {*(yield self._calls.queues.names()), *(task.queue for task in tasks.values())}
        return {"queue": queues, "task": {*(yield self._calls.queues.task_queues()), *tasks}}

    def _meant(self, name: str, known: dict[str, set[str]], rules: Sequence[str]) -> Steps[str | None]:
        """Return a known key that ends in the given name or in a similar one."""
        for kind, names in known.items():
            if name in names:
                return f"{kind}:{name}"
        if (yield self.calls.has_tenant(name)):
            return f"tenant:{name}"
        found: Sequence[str] = yield self.calls.existing([re.sub(r"\{[^}]*\}", lambda _: name, rule) for rule in rules])
        if found:
            return found[0]
        endings = {each: f"{kind}:{each}" for kind, names in known.items() for each in sorted(names)}
        near = nearest(name, endings)
        return None if near is None else endings[near]

    def _set(
        self, key: str, *, by: str | None = None, reason: str | None = None, **numbers: Unpack[LimitNumbers]
    ) -> Call[int]:
        """Change the limit of a key, or with a template ("domain:{domain}") of all its keys; at once, until it is
        cleared. Numbers are concurrency, rate, per, burst, breaker_after, breaker_pause, breaker_cap and weight: None
        restores the value of the code; omitted ones stay. Return the number of keys it applies to."""
        if not numbers:
            raise UsageError(f"nothing to change; give a value, as in limits.set({key!r}, concurrency=4)")
        return self.calls.set(key, numbers, by, reason)

    set, aset = operation(_set)

    def _clear(
        self, key: str, *, only: Sequence[str] = (), by: str | None = None, reason: str | None = None
    ) -> Call[int]:
        """Remove what operators have set for a key or a template, or only some of it, as in ["rate"]. Return the number
        of keys, 0 if nothing was set."""
        return self.calls.set(key, dict.fromkeys(only), by, reason) if only else self.calls.clear(key, by, reason)

    clear, aclear = operation(_clear)

    def _pause(
        self, key: str, *, reason: str | None = None, for_: float | timedelta | None = None, by: str | None = None
    ) -> Call[bool]:
        """Start no more jobs under a key, for some seconds or until it is resumed. Running jobs continue. Return
        whether it was not paused before."""
        length = None if for_ is None else check.seconds(for_, "the length of a pause")
        return self.calls.pause(key, by, reason, length)

    pause, apause = operation(_pause)

    def _resume(self, key: str, *, by: str | None = None, reason: str | None = None) -> Call[bool]:
        """Resume a paused key. Return whether it was paused."""
        return self.calls.resume(key, by, reason)

    resume, aresume = operation(_resume)

    def _reset_breaker(self, key: str, *, by: str | None = None, reason: str | None = None) -> Call[bool]:
        """Close the breaker of a key and forget its failures. Return whether it was open or half open."""
        return self.calls.reset_breaker(key, by, reason)

    reset_breaker, areset_breaker = operation(_reset_breaker)
