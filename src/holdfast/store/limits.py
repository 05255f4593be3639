"""Calls of flow control: limits, pauses, why. See call.py."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import msgspec

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.limit import Limit, LimitInfo, lane
from holdfast.store.call import Call, Row, dicts, first, firsts, void

_LIMIT_COLUMNS = ", ".join("probe::text" if each.name == "probe" else each.name for each in fields(LimitInfo))
_BUSY = "(running > 0 OR paused OR breaker IN ('open', 'half-open') OR tokens < 1)"

_BLOCKS = "(paused OR coalesce(breaker IN ('open', 'half-open'), false) OR coalesce(running >= concurrency, false))"


class LimitCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def list(
        self, prefix: str = "", *, busy: bool = False, limit: int, busiest_first: bool = False
    ) -> Call[builtins.list[LimitInfo]]:
        """Return the keys with a prefix, sorted by key. `busy` selects keys that have running jobs or block some;
        `busiest_first` puts those first under which nothing can start."""
        _check(key=prefix)
        order = f"{_BLOCKS} DESC, running DESC, throttled DESC, key" if busiest_first else "key"
        return Call(
            f"SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE starts_with(key, %s)"
            f"{f' AND {_BUSY}' if busy else ''} ORDER BY {order} LIMIT %s",
            (prefix, limit),
            lambda rows: [LimitInfo(*row) for row in rows],
        )

    def read(self, keys: Sequence[str]) -> Call[builtins.list[LimitInfo]]:
        """Return those of the keys that have a limit, were paused or were ever claimed under."""
        return Call(
            f"SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE key = ANY(%s)",
            (list(keys),),
            lambda rows: [LimitInfo(*row) for row in rows],
        )

    def busiest(self, prefix: str, limit: int) -> Call[builtins.list[LimitInfo]]:
        """Return the keys with a prefix under which nothing can start, and then those with the most running jobs. They
        are chosen from the tables, because the view takes ten times as long for 10,000 keys."""
        _check(key=prefix)
        return Call(
            f"""SELECT {_LIMIT_COLUMNS} FROM {self.schema}.limit_use WHERE key = ANY(ARRAY(
                    SELECT coalesce(m.key, s.key)
                    FROM {self.schema}.limits m FULL JOIN {self.schema}.limit_settings s ON s.key = m.key
                    LEFT JOIN {self.schema}.limit_rules r ON r.template = m.template
                    WHERE starts_with(coalesce(m.key, s.key), %s)
                    ORDER BY coalesce(s.paused, false) OR m.open_until IS NOT NULL
                             OR coalesce(m.running >= coalesce(s.concurrency, r.concurrency), false) DESC,
                        coalesce(m.running, 0) DESC, 1 LIMIT %s))
                ORDER BY {_BLOCKS} DESC, running DESC, throttled DESC, key""",
            (prefix, limit),
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

    def set(self, key: str, change: Mapping[str, float | None], by: str | None, reason: str | None = None) -> Call[int]:
        _check(key=key, by=by, reason=reason)
        for name, value in change.items():  # JSON would have null, which removes the limit
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} is a number, or None for what the code says; got {value!r}")
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
