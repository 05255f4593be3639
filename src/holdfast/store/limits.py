"""Calls of flow control: limits, pauses, why. See call.py."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import msgspec

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.limit import BreakerEvent, Limit, LimitInfo, lane
from holdfast.store.call import Call, Row, dicts, first, firsts, void

_LIMIT_COLUMNS = ", ".join("probe::text" if each.name == "probe" else each.name for each in fields(LimitInfo))
_BUSY = "(running > 0 OR paused OR breaker IN ('open', 'half-open') OR tokens < 1)"

_BUSIEST = (
    "(paused OR coalesce(breaker IN ('open', 'half-open'), false) OR coalesce(running >= concurrency, false)) DESC, "
    "running DESC, throttled DESC, key"
)
# The same in the tables: keys that are busy, and those under which nothing can start.
_PAUSED = "coalesce(s.paused AND coalesce(s.paused_until > c.now, true), false)"
_AT_LIMIT = "coalesce(m.running >= coalesce(s.concurrency, r.concurrency), false)"
_FULL = f"({_PAUSED} OR m.open_until IS NOT NULL OR {_AT_LIMIT})"
_REFILLED = "m.tokens + extract(epoch FROM c.now - m.tokens_at) * coalesce(s.rate, r.rate) / coalesce(s.per, r.per)"
_MAYBE_BUSY = f"(m.running > 0 OR {_PAUSED} OR m.open_until IS NOT NULL OR {_REFILLED} < 1)"


class LimitCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def list(
        self, prefix: str = "", *, busy: bool = False, limit: int, busiest_first: bool = False
    ) -> Call[builtins.list[LimitInfo]]:
        """Return the keys with a prefix, sorted by key. `busy` selects keys that have running jobs or block some;
        `busiest_first` puts those first under which nothing can start, and then those with the most running jobs."""
        _check(key=prefix)
        some = f" AND {_BUSY}" if busy else ""
        return Call(
            f"SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE key = ANY(ARRAY("
            f"{self._chosen(busy, busiest_first)})){some} ORDER BY {_BUSIEST if busiest_first else 'key'}",
            (prefix, limit),
            lambda rows: [LimitInfo(*row) for row in rows],
        )

    def _chosen(self, busy: bool, busiest_first: bool) -> str:
        """Return the query of the keys to list. They are chosen from the tables, because the view takes ten times as
        long for 10,000 keys."""
        some = f" AND {_MAYBE_BUSY}" if busy else ""
        order = f"{_FULL} DESC, coalesce(m.running, 0) DESC, 1" if busiest_first else "1"
        return f"""SELECT coalesce(m.key, s.key)
            FROM {self.schema}.limits m FULL JOIN {self.schema}.limit_settings s ON s.key = m.key
            LEFT JOIN {self.schema}.limit_rules r ON r.template = m.template
            CROSS JOIN (SELECT {self.schema}.clock() AS now) c
            WHERE starts_with(coalesce(m.key, s.key), %s){some} ORDER BY {order} LIMIT %s"""

    def read(self, keys: Sequence[str]) -> Call[builtins.list[LimitInfo]]:
        """Return those of the keys that have a limit, were paused or were ever claimed under."""
        return Call(
            f"SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE key = ANY(%s)",
            (list(keys),),
            lambda rows: [LimitInfo(*row) for row in rows],
        )

    def paused(self, prefix: str, limit: int) -> Call[builtins.list[LimitInfo]]:
        """Return the paused keys with a prefix. Only the keys with settings are read."""
        return Call(
            f"SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE paused AND key IN ("
            f"SELECT key FROM {self.schema}.limit_settings WHERE paused AND starts_with(key, %s) "
            "ORDER BY key LIMIT %s) ORDER BY key",
            (prefix, limit),
            lambda rows: [LimitInfo(*row) for row in rows],
        )

    def register(self, limits: Iterable[Limit]) -> Call[None]:
        rules = [{"template": it.key, "pattern": it.pattern, "code": it.as_json()} for it in limits]
        return void(self.schema, "register_limits", "%s::jsonb", msgspec.json.encode(rules).decode())

    def rules(self) -> Call[builtins.list[Row]]:
        """Return the limits that code declares, by key template, with operators' overrides."""
        return dicts(
            f"SELECT template, code, override - 'by' - 'at', override ->> 'by', updated_at, "
            f"(SELECT count(*) FROM {self.schema}.limits m WHERE m.template = r.template) "
            f"FROM {self.schema}.limit_rules r ORDER BY template",
            "template, code, override, changed_by, updated_at, keys",
        )

    def set(self, key: str, change: Mapping[str, object], by: str | None, reason: str | None = None) -> Call[int]:
        _check(key=key, by=by, reason=reason)
        for name, value in change.items():  # JSON would have null, which removes the limit
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} must be a number, or None for what the code says; got {value!r}")
        data = msgspec.json.encode(change).decode()
        return Call(f"SELECT {self.schema}.set_limit(%s, %s::jsonb, %s, %s)", (key, data, by, reason), first)

    def clear(self, key: str, by: str | None = None, reason: str | None = None) -> Call[int]:
        _check(key=key, by=by, reason=reason)
        return Call(f"SELECT {self.schema}.clear_limit(%s, %s, %s)", (key, by, reason), first)

    def pause(self, key: str, by: str | None, reason: str | None, seconds: float | None) -> Call[bool]:
        _check(key=key, by=by, reason=reason)
        return Call(
            f"SELECT {self.schema}.pause(%s, %s, %s, make_interval(secs => %s))", (key, by, reason, seconds), first
        )

    def resume(self, key: str, by: str | None = None, reason: str | None = None) -> Call[bool]:
        _check(key=key, by=by, reason=reason)
        return Call(f"SELECT {self.schema}.resume(%s, %s, %s)", (key, by, reason), first)

    def reset_breaker(self, key: str, by: str | None = None, reason: str | None = None) -> Call[bool]:
        _check(key=key, by=by, reason=reason)
        return Call(f"SELECT {self.schema}.reset_breaker(%s, %s, %s)", (key, by, reason), first)

    def breaker_history(self, key: str, limit: int) -> Call[builtins.list[BreakerEvent]]:
        """Return the newest events of a key's breaker. At most 50 are kept, so they are read together."""
        _check(key=key)
        return Call(
            f"""SELECT event, at, failures, open_until, CASE WHEN event <> 'opened' THEN extract(epoch FROM
                       at - max(at) FILTER (WHERE event = 'opened') OVER (ORDER BY id))::float8 END, by, reason
                FROM {self.schema}.breaker_events WHERE key = %s ORDER BY id DESC LIMIT %s""",
            (key, limit),
            lambda rows: [BreakerEvent(*row) for row in rows],
        )

    def reconcile(self, *, repair: bool) -> Call[builtins.list[Row]]:
        """Return the keys whose counter of running jobs is wrong; with `repair`, correct them."""
        source = "reconcile_limits()" if repair else "limit_drift"
        return dicts(f"SELECT key, counted, actual FROM {self.schema}.{source} ORDER BY key", "key, counted, actual")

    def is_known(self, key: str, declared: Sequence[str] = ()) -> Call[bool]:
        """Return whether a key has a row, or matches a rule or one of the `declared` patterns."""
        return Call(
            f"SELECT EXISTS (SELECT FROM {self.schema}.limit_use WHERE key = %s) OR %s LIKE ANY(%s) "
            f"OR EXISTS (SELECT FROM {self.schema}.limit_rules WHERE %s LIKE pattern)",
            (key, key, list(declared), key),
            first,
        )

    def existing(self, keys: Sequence[str]) -> Call[builtins.list[str]]:
        """Return which of these keys have a row."""
        return Call(f"SELECT key FROM {self.schema}.limit_use WHERE key = ANY(%s) ORDER BY key", (list(keys),), firsts)

    def has_tenant(self, tenant: str) -> Call[bool]:
        """Return whether a tenant has a limit, a place in a ring, or a job among the first arrivals."""
        return Call(
            f"""SELECT EXISTS (SELECT FROM {self.schema}.limit_use WHERE key = 'tenant:' || %s)
                    OR EXISTS (SELECT FROM {self.schema}.rings r CROSS JOIN LATERAL (
                        SELECT FROM {self.schema}.flows f WHERE f.queue = r.queue AND f.priority = r.priority
                          AND f.direct = r.direct AND f.flow = %s LIMIT 1) f)
                    OR EXISTS (SELECT FROM (SELECT a.tenant FROM {self.schema}.arrivals a LIMIT 10000) a
                               WHERE a.tenant = %s)""",
            (tenant, lane(tenant, None), tenant),
            first,
        )


def _check(**texts: str | None) -> None:
    """Raise UsageError for text that PostgreSQL cannot store; SQL checks the length of keys."""
    for name, text in texts.items():
        if text not in (None, ""):
            payload.check_text(text, name, 1 << 20)
