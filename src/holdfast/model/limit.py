"""Limits by key: how many jobs of a key may run at once, how many may start in a period, and when to stop trying.

A limit's key is a template over the task's arguments. Enqueue fills it in and stores the keys with the job; a claim
enforces the limits in the database. Jobs with the same tenant and the same keys wait in the same lane, a number that
SQL's lane_of() computes as `lane` does here.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from string import Formatter
from typing import Any, TypedDict

from holdfast.errors import ConfigurationError, UsageError
from holdfast.model import payload
from holdfast.model.retry import LONGEST, Rules, check_rule, matches

LONGEST_KEY = 300
SMALLEST, LARGEST = 0.000001, 1_000_000_000  # bounds of a limit's numbers, as in SQL's check_limit()
MOST = 20  # limits of one task
RESERVED = ("tenant", "queue", "task")
"""Names that a template may use besides arguments. Keys that begin with one of these and a colon concern a whole
tenant, queue or task."""
ORDER = "order:"
"""Prefix of orders: one job at a time, in the order of enqueue; a job that waits for a retry blocks the rest."""
Keys = tuple[str, ...]
Part = tuple[str, str | None]
"""Text of a template, and the field after it, if any."""
_CACHE_SIZE = 16_384


@dataclass(frozen=True, slots=True)
class Breaker:
    """Stops a key's jobs after failures in a row: `Limit("source:{source}", breaker=Breaker(after=5, pause=300))`.

    After `after` failures of the key's jobs without a success in between, none of them starts for `pause` seconds. Then
    one job is tried alone: if it succeeds, the rest continue; if it fails, the pause doubles, up to `cap` seconds.
    Waiting jobs lose no attempts. `on` selects the errors that count, by exception type or by error code as in
    `Retry.on`; without it every error counts. Each task with the same key may choose its own.
    """

    after: int = 5
    pause: float = 300
    cap: float = 3600
    on: Sequence[type[BaseException] | str] | None = None

    def __post_init__(self) -> None:
        _check_count(self.after, "a breaker's after")
        _check_seconds(self.pause, "a breaker's pause")
        _check_seconds(self.cap, "a breaker's cap")
        if self.cap < self.pause:
            raise ConfigurationError(
                f"a breaker's cap must be at least its pause, got pause={self.pause}, cap={self.cap}"
            )
        if self.on is not None:
            object.__setattr__(self, "on", _checked_rules(self.on))

    def counts(self, error: BaseException, code: str | None) -> bool:
        """Return whether an error counts."""
        return self.on is None or matches(tuple(self.on), error, code)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on the jobs of one key, across all workers: `Limit("domain:{domain}", concurrency=2)`.

    key: a text with the names of the task's arguments in braces, each replaced by str() of its value when a job is
    enqueued. `{tenant}`, `{queue}` and `{task}` are the job's own unless the task has an argument of that name; where
    `{tenant}` is used, the limit does not apply to jobs without a tenant. Tasks with the same key share the limit.

    concurrency: how many run at once. rate: how many start within `per` seconds (default: a minute), up to `burst` of
    them at once (default: one second's worth of the rate, at least one). breaker: when to pause the key. Operators may
    change every number while jobs run, and their values take precedence over the code.

    A key that begins with "order:" is an order, `Limit("order:{account}")`. Its jobs of one queue and tenant run one at
    a time, in the order of enqueue. A job that waits for a retry blocks the rest until it has ended.
    """

    key: str
    _: KW_ONLY
    concurrency: int | None = None
    rate: float | None = None
    per: float = 60
    burst: float | None = None
    breaker: Breaker | None = None

    def __post_init__(self) -> None:
        payload.check_text(self.key, "the key of a limit", LONGEST_KEY)
        parse(self.key)
        _refuse_reserved(self.key)
        value: Any = self.breaker  # not every caller has a type checker
        if value is not None and not isinstance(value, Breaker):
            raise ConfigurationError(
                f"limit {self.key!r}: breaker must be a Breaker, as in Breaker(after=5), got {value!r}"
            )
        if self.key.startswith(ORDER):
            if self.concurrency not in (None, 1):
                raise ConfigurationError(
                    f"limit {self.key!r} is an order, whose jobs run one at a time: its concurrency must be 1, got "
                    f"{self.concurrency!r}; start the key with another prefix"
                )
            if self.rate is not None or self.breaker is not None:
                raise ConfigurationError(
                    f"limit {self.key!r} is an order, which a job keeps until it has ended: a rate or a breaker would "
                    "not see its further attempts; give them in a second limit, whose key begins with another word"
                )
            object.__setattr__(self, "concurrency", 1)
        if self.concurrency is None and self.rate is None and self.breaker is None:
            raise ConfigurationError(f"limit {self.key!r} limits nothing; give concurrency, rate or breaker")
        if self.concurrency is not None:
            _check_count(self.concurrency, f"limit {self.key!r}: concurrency")
        self._check_rate()

    def _check_rate(self) -> None:
        what = f"limit {self.key!r}:"
        _check_seconds(self.per, f"{what} per")
        if self.rate is None:
            if self.burst is not None:
                raise ConfigurationError(f"{what} burst goes with a rate, and there is none")
            return
        if not _is_number(self.rate) or not SMALLEST <= self.rate <= LARGEST:
            raise ConfigurationError(
                f"{what} rate must be above 0 and up to {LARGEST:,} starts, got {self.rate!r}; to let nothing "
                "start, pause it instead"
            )
        if self.burst is not None and (not _is_number(self.burst) or not 1 <= self.burst <= LARGEST):
            raise ConfigurationError(f"{what} burst must be 1 to {LARGEST:,} starts, got {self.burst!r}")

    @property
    def pattern(self) -> str:
        """Return the LIKE pattern that matches the keys of this template."""
        return "".join(_escaped(text) + ("" if name is None else "%") for text, name in parse(self.key))

    def as_json(self) -> dict[str, Any]:
        """Return the numbers in the form that register_limits() stores."""
        shape: dict[str, Any] = {}
        if self.concurrency is not None:
            shape["concurrency"] = self.concurrency
        if self.rate is not None:
            # A burst of one second's worth keeps a worker that polls a few milliseconds late at the full rate.
            burst = min(max(1.0, self.rate / self.per), LARGEST) if self.burst is None else self.burst
            shape |= {"rate": self.rate, "per": self.per, "burst": burst}
        if (breaker := self.breaker) is not None:
            shape |= {"breaker_after": breaker.after, "breaker_pause": breaker.pause, "breaker_cap": breaker.cap}
        return shape


class Limits:
    """The limits of one task; their templates name its parameters."""

    __slots__ = ("_fields", "_task", "all", "picky")

    def __init__(self, task: str, limits: Sequence[Limit], parameters: Collection[str]) -> None:
        value: Any = limits
        if isinstance(value, Limit | str) or not all(isinstance(each, Limit) for each in value):
            raise ConfigurationError(f"task {task!r}: limits are a list such as [Limit('smtp', concurrency=2)]")
        if len(limits) > MOST:
            raise ConfigurationError(
                f"task {task!r} has {len(limits)} limits, more than the {MOST} that a job may have"
            )
        if len(orders := [each.key for each in limits if each.key.startswith(ORDER)]) > 1:
            raise ConfigurationError(
                f"task {task!r} has the orders {' and '.join(map(repr, orders))}, but a job can be in one order only; "
                "keep one, or put all of its values into one key"
            )
        self._task = task
        self.all = tuple(limits)
        self.picky = any(each.breaker is not None and each.breaker.on is not None for each in limits)
        self._fields = [self._checked(each, parameters) for each in limits]

    def _checked(self, limit: Limit, parameters: Collection[str]) -> tuple[Limit, tuple[Part, ...], bool]:
        parts = parse(limit.key)
        names = {name for _, name in parts if name is not None}
        if unknown := sorted(names - {*parameters, *RESERVED}):
            known = ", ".join([*parameters, *(name for name in RESERVED if name not in parameters)])
            raise ConfigurationError(
                f"limit {limit.key!r} of task {self._task!r} names {unknown[0]!r}, which is no argument of it; it may "
                f"name {known}"
            )
        if clash := [name for name in RESERVED if limit.key == f"{name}:{{{name}}}" and name in parameters]:
            raise ConfigurationError(
                f"limit {limit.key!r} of task {self._task!r} limits a whole {clash[0]}, but the task has an argument "
                f"{clash[0]!r}; start the key with another prefix"
            )
        return limit, parts, "tenant" in names and "tenant" not in parameters

    def keys(self, arguments: Mapping[str, Any], tenant: str | None, queue: str) -> Keys | None:
        """Return the distinct keys of a job in the order of the limits, or None if no limit applies."""
        return tuple(dict.fromkeys(key for _, key in self._filled(arguments, tenant, queue))) or None

    def counts(
        self, arguments: Mapping[str, Any], tenant: str | None, queue: str, error: BaseException, code: str | None
    ) -> list[str]:
        """Return the keys of a job whose breakers count an error. Breakers of whole queues, tasks and tenants count
        every error."""
        filled = list(self._filled(arguments, tenant, queue))
        counted = {key for limit, key in filled if limit.breaker is None or limit.breaker.counts(error, code)}
        whole = [f"queue:{queue}", f"task:{self._task}", *([] if tenant is None else [f"tenant:{tenant}"])]
        left_out = {key for _, key in filled} - counted
        return [key for key in dict.fromkeys([*(key for _, key in filled), *whole]) if key not in left_out]

    def _filled(self, arguments: Mapping[str, Any], tenant: str | None, queue: str) -> Iterator[tuple[Limit, str]]:
        values = {"tenant": tenant, "queue": queue, "task": self._task, **arguments}
        for limit, parts, needs_tenant in self._fields:
            if not (needs_tenant and tenant is None):
                yield limit, self._fill(limit, parts, values)

    def _fill(self, limit: Limit, parts: Sequence[Part], values: Mapping[str, Any]) -> str:
        key = "".join(text if name is None else text + str(values[name]) for text, name in parts)
        names = [name for _, name in parts if name is not None]
        if empty := [name for name in names if values[name] is None]:
            raise UsageError(f"limit {limit.key!r} of task {self._task!r} needs a value, but {empty[0]!r} is None")
        if not 1 <= len(key) <= LONGEST_KEY:
            longest = max(names, key=lambda name: len(str(values[name])))
            raise UsageError(
                f"limit {limit.key!r} of task {self._task!r} gives a key of {len(key)} characters; it may have 1 to "
                f"{LONGEST_KEY}, and {longest!r} alone has {len(str(values[longest]))}"
            )
        return key


@functools.lru_cache(_CACHE_SIZE)
def parse(template: str) -> tuple[Part, ...]:
    """Return a template's parts. Fields are plain names; a literal brace is doubled."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(f"the key {template!r} of a limit cannot be read: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (not name.isidentifier() or spec or conversion):
            field = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise ConfigurationError(
                f"the key {template!r} of a limit has the field {{{field}}}; a field is the name of an argument and "
                "nothing else"
            )
    return tuple((text, name) for text, name, _, _ in parts)


def lane(tenant: str | None, keys: Keys | None) -> int:
    """Return a job's lane, the same number as SQL's lane_of(); 0 without a tenant and keys."""
    if tenant is None and not keys:
        return 0
    return max((_hash(tenant) if tenant is not None else 0) ^ (_lane_of_keys(keys) if keys else 0), 1)


@functools.lru_cache(_CACHE_SIZE)
def _lane_of_keys(keys: Keys) -> int:
    ordered = [key for key in keys if key.startswith(ORDER)]  # an order is one lane, whatever its jobs' other keys
    return _hash("\x1f" + "\x1f".join(sorted(ordered or keys)))


@functools.lru_cache(_CACHE_SIZE)
def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") & 0x7FFFFFFFFFFFFFFF


def _escaped(text: str) -> str:
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return text


def _refuse_reserved(key: str) -> None:
    """Refuse keys that could collide with one such as "tenant:acme", which limits a whole tenant: an argument's value
    must not produce one, and a rule must not match all of them."""
    start, has_field = _start(parse(key))
    for name in RESERVED:
        whole = f"{name}:"
        if key != f"{whole}{{{name}}}" and (start.startswith(whole) or (has_field and whole.startswith(start))):
            raise ConfigurationError(
                f"the key {key!r} of a limit could start with the reserved prefix {whole!r}; use another prefix, as in "
                f"'domain:{{domain}}'; for a limit per {name} write '{name}:{{{name}}}'"
            )
    if has_field and start != ORDER and ORDER.startswith(start):
        raise ConfigurationError(
            f"the key {key!r} of a limit could start with the reserved prefix 'order:'; use another prefix"
        )


def _start(parts: Sequence[Part]) -> tuple[str, bool]:
    """Return the text that all keys of a template begin with, and whether a field follows it."""
    start = ""
    for text, name in parts:
        start += text
        if name is not None:
            return start, True
    return start, False


def _checked_rules(rules: Any) -> Rules:
    if isinstance(rules, str | type):
        raise ConfigurationError(
            f"a breaker's errors must be a list, as in on=[ConnectionError, 'HTTP_503'], got {rules!r}"
        )
    checked = tuple(rules)
    for rule in checked:
        check_rule(rule)
    if not checked:
        raise ConfigurationError("a breaker that counts no error never opens; name some in on=, or leave it out")
    return checked


def _check_count(value: Any, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
        raise ConfigurationError(f"{what} must be a whole number, 1 to {LARGEST:,}, got {value!r}")


def _check_seconds(value: Any, what: str) -> None:
    if not _is_number(value) or not SMALLEST <= value <= LONGEST:
        raise ConfigurationError(f"{what} must be a number of seconds above 0 and up to {LONGEST:g}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class LimitNumbers(TypedDict, total=False):
    """The numbers of a limit that operators may change. None restores the value of the code."""

    concurrency: int | None
    rate: float | None
    per: float | None
    burst: float | None
    breaker_after: int | None
    breaker_pause: float | None
    breaker_cap: float | None
    weight: float | None


NUMBERS = tuple(LimitNumbers.__annotations__)


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One row of the `limit_use` view: a key, its effective limits and their use.

    template: the rule of the key. tokens: starts that the rate allows now; next_token: seconds until it allows one.
    breaker: "closed", "open" or "half-open"; None without a breaker. throttled: how often lanes were skipped because of
    this key. override: operators' values, last set by changed_by.
    """

    key: str
    kind: str
    template: str | None
    concurrency: int | None
    running: int
    rate: float | None
    per: float | None
    burst: float | None
    tokens: float | None
    next_token: float | None
    paused: bool
    paused_at: datetime | None
    paused_until: datetime | None
    paused_by: str | None
    paused_reason: str | None
    breaker: str | None
    open_until: datetime | None
    probe: str | None
    failure_streak: int
    last_success_at: datetime | None
    last_failure_at: datetime | None
    breaker_after: int | None
    breaker_pause: float | None
    breaker_cap: float | None
    throttled: int
    weight: float | None
    override: dict[str, Any]
    changed_by: str | None
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class BreakerEvent:
    """What a key's breaker did. event: "opened" after failures in a row, "reopened" when its probe failed, "closed"
    when the probe succeeded, "reset" by an operator. seconds: how long it had been open then."""

    event: str
    at: datetime
    failures: int
    open_until: datetime | None
    seconds: float | None
    by: str | None
    reason: str | None
