"""Calls of flow control: limits, pauses, why. See calls.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.model import payload
from holdfast.model.limit import LimitInfo, lane
from holdfast.model.retry import LONGEST
from holdfast.model.why import Reason, Why
from holdfast.store.calls import Call, Rows

_LIMIT_COLUMNS = ", ".join("probe::text" if each.name == "probe" else each.name for each in fields(LimitInfo))
_BUSY = "(running > 0 OR paused OR breaker IN ('open', 'half-open') OR tokens < 1)"

_BLOCKS = "(paused OR coalesce(breaker IN ('open', 'half-open'), false) OR coalesce(running >= concurrency, false))"


class LimitCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def limits(
        self, prefix: str = "", *, busy: bool = False, limit: int, busiest_first: bool = False
    ) -> Call[list[LimitInfo]]:
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

    def count_busy(self) -> Call[int]:
        """Count the keys that have running jobs or block some."""
        return Call(f"SELECT count(*) FROM {self.schema}.limit_use WHERE {_BUSY}", (), _first)

    def rules(self) -> Call[list[dict[str, Any]]]:
        """Return the limits that code declares, by key template, with operators' overrides."""
        return _dicts(
            f"SELECT template, code, override - 'by' - 'at', override ->> 'by', updated_at, "
            f"(SELECT count(*) FROM {self.schema}.limits m WHERE m.template = r.template) "
            f"FROM {self.schema}.limit_rules r ORDER BY template",
            "template, code, override, changed_by, updated_at, keys",
        )

    def set_limit(self, key: str, change: Mapping[str, float | None], by: str | None) -> Call[int]:
        _check(key=key, by=by)
        for name, value in change.items():  # JSON would have null, which removes the limit
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{name} is a number, or None for what the code says; got {value!r}")
        data = msgspec.json.encode(change).decode()
        return Call(f"SELECT {self.schema}.set_limit(%s, %s::jsonb, %s)", (key, data, by), _first)

    def clear_limit(self, key: str) -> Call[int]:
        _check(key=key)
        return Call(f"SELECT {self.schema}.clear_limit(%s)", (key,), _first)

    def pause(self, key: str, by: str | None, reason: str | None, seconds: float | None) -> Call[bool]:
        _check(key=key, by=by, reason=reason)
        value: Any = seconds  # not every caller has a type checker
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not value <= LONGEST
        ):
            raise UsageError(f"a pause lasts for seconds, up to {LONGEST:.0f}, or until it is resumed; got {value!r}")
        return Call(
            f"SELECT {self.schema}.pause(%s, %s, %s, make_interval(secs => %s))", (key, by, reason, seconds), _first
        )

    def resume(self, key: str) -> Call[bool]:
        _check(key=key)
        return Call(f"SELECT {self.schema}.resume(%s)", (key,), _first)

    def reset_breaker(self, key: str) -> Call[bool]:
        _check(key=key)
        return Call(f"SELECT {self.schema}.reset_breaker(%s)", (key,), _first)

    def why(self, id_: str) -> Call[Why]:
        return Call(f"SELECT {self.schema}.why(%s::uuid)", (id_,), lambda rows: _why(rows[0][0]))

    def drift(self) -> Call[list[dict[str, Any]]]:
        """Return the keys whose counter of running jobs is wrong; there should be none."""
        return self._drift("limit_drift()")

    def reconcile(self, *, repair: bool) -> Call[list[dict[str, Any]]]:
        """Return the same keys; with `repair`, correct their counters."""
        return self._drift("reconcile_limits(%s)", repair)

    def _drift(self, function: str, *params: Any) -> Call[list[dict[str, Any]]]:
        return _dicts(f"SELECT key, counted, actual FROM {self.schema}.{function} ORDER BY key", "key, counted, actual",
                      params)  # fmt: skip

    def left(self, queue: str, since: datetime | None) -> Call[Left]:
        """Count the jobs of a queue that were enqueued before a time, or now, and have not ended."""
        live, later = f"{self.schema}.live", f"{self.schema}.later"
        return Call(
            f"""SELECT t.at,
                    (SELECT ARRAY[count(*) FILTER (WHERE token IS NULL), count(token)]
                     FROM {live} WHERE queue = %s AND created_at <= t.at),
                    (SELECT ARRAY[count(*) FILTER (WHERE attempt > 0 OR last_error IS NOT NULL),
                                  count(*) FILTER (WHERE attempt = 0 AND last_error IS NULL)]
                     FROM {later} WHERE queue = %s AND created_at <= t.at)
                FROM (SELECT coalesce(%s::timestamptz, {self.schema}.clock()) AS at) t""",
            (queue, queue, since),
            lambda rows: Left(rows[0][0], *rows[0][1], *rows[0][2]),
        )

    def some_left(self, queue: str, since: datetime, *, limit: int) -> Call[list[str]]:
        """Return some of those jobs, waiting ones first."""
        return Call(
            f"SELECT id::text FROM {self.schema}.live WHERE queue = %s AND created_at <= %s "
            "ORDER BY token IS NOT NULL, run_at, id LIMIT %s",
            (queue, since, limit),
            _firsts,
        )

    def queue_names(self, *, of_workers: bool = True) -> Call[list[str]]:
        """Return the queues with due or running jobs or a task; with `of_workers`, also those that workers serve."""
        served = f"UNION SELECT unnest(queues) FROM {self.schema}.workers " if of_workers else ""
        return Call(
            f"{self._queues_of_jobs()} SELECT queue::text FROM names WHERE queue IS NOT NULL {served}"
            f"UNION SELECT queue::text FROM {self.schema}.tasks ORDER BY 1",
            (),
            _firsts,
        )

    def is_known(self, key: str, declared: Sequence[str] = ()) -> Call[bool]:
        """Return whether a key has a row, or matches a rule or one of the `declared` patterns."""
        return Call(
            f"SELECT EXISTS (SELECT FROM {self.schema}.limit_use WHERE key = %s) OR %s LIKE ANY(%s) "
            f"OR EXISTS (SELECT FROM {self.schema}.limit_rules WHERE %s LIKE pattern)",
            (key, key, list(declared), key),
            _first,
        )

    def existing(self, keys: Sequence[str]) -> Call[list[str]]:
        """Return which of these keys have a row."""
        return Call(f"SELECT key FROM {self.schema}.limit_use WHERE key = ANY(%s) ORDER BY key", (list(keys),), _firsts)

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
            _first,
        )

    def _queues_of_jobs(self) -> str:
        """Return a CTE with the queues of live, read by a skip scan of the fetch index."""
        live = f"{self.schema}.live"
        return f"""WITH RECURSIVE names AS (
                    SELECT min(queue) AS queue FROM {live}
                    UNION ALL
                    SELECT (SELECT min(l.queue) FROM {live} l WHERE l.queue > n.queue)
                    FROM names n WHERE n.queue IS NOT NULL)"""

    def running(self) -> Call[list[dict[str, Any]]]:
        """Count the running jobs of each queue by worker."""
        return _dicts(
            f"SELECT queue, worker, count(*) FROM {self.schema}.claimed_jobs() GROUP BY 1, 2 ORDER BY 1, 2",
            "queue, worker, running",
        )

    def tenant_shares(self, limit: int) -> Call[list[dict[str, Any]]]:
        """Return each tenant's share of the running jobs, greatest first."""
        return _dicts(
            f"SELECT tenant, running, share::float8, weight FROM {self.schema}.tenant_shares "
            "ORDER BY running DESC, tenant LIMIT %s",
            "tenant, running, share, weight",
            (limit,),
        )

    def totals(self) -> Call[dict[str, Any]]:
        """Return the database's time and its counter of ended jobs, from which callers compute a rate."""
        call = _dicts(
            f"""SELECT {self.schema}.clock(), (SELECT coalesce(sum(n_tup_ins), 0)::int8 FROM pg_stat_user_tables
                                               WHERE schemaname = %s AND starts_with(relname, 'history_'))""",
            "at, ended",
            (self.schema,),
        )
        return Call(call.sql, call.params, lambda rows: call.read(rows)[0])


@dataclass(frozen=True, slots=True)
class Left:
    """Jobs enqueued before `at` that have not ended. delayed: not due yet and never failed."""

    at: datetime
    waiting: int
    running: int
    retrying: int
    delayed: int


def _dicts(sql: str, names: str, params: Sequence[Any] = ()) -> Call[list[dict[str, Any]]]:
    keys = names.split(", ")
    return Call(sql, params, lambda rows: [dict(zip(keys, row, strict=True)) for row in rows])


def _firsts(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]


def _check(**texts: str | None) -> None:
    """Raise UsageError for text that PostgreSQL cannot store; SQL checks the length of keys."""
    for name, text in texts.items():
        if text not in (None, ""):
            payload.check_text(text, name, 1 << 20)


def _first(rows: Rows) -> Any:
    return rows[0][0]


def _why(row: dict[str, Any]) -> Why:
    return Why(row["id"], row["status"], row["sentence"], *(
        [Reason(each.pop("kind"), each.pop("text"), each) for each in row[name]] for name in ("reasons", "notes")
    ))  # fmt: skip
