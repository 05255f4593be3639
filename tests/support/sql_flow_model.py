"""A model of limits in plain Python, and its random inputs: test_flow_machine.py compares the database with it. It
defines which jobs may start, and the state of a key after ended jobs are folded in, not how that is computed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.flow import Taken

GOOD, NEITHER, BAD = 1, 0, -1
VERDICTS = {
    "succeeded": GOOD,
    "error": BAD,
    "failed": BAD,
    "dead": BAD,
    "snoozed": NEITHER,
    "released": NEITHER,
    "canceled": NEITHER,
    "lost": NEITHER,
}

TENANTS = (None, "a", "b", "c")
NAMES = ("k1", "k2", "k3", "rate", "breaker", "free")
IMPLICIT = ("queue:default", "queue:mail", "task:t", "task:u", "tenant:a", "tenant:b")

rules = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": st.integers(0, 3),
        "rate": st.sampled_from([1, 3]),
        "breaker_after": st.sampled_from([1, 2]),
    },
).map(
    lambda given: (
        given
        | ({"per": 10, "burst": 2} if "rate" in given else {})
        | ({"breaker_pause": 10, "breaker_cap": 30} if "breaker_after" in given else {})
    )
)
keys = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
picks = st.lists(st.integers(0, 1000), min_size=1, max_size=5)
any_key = st.sampled_from(NAMES + IMPLICIT)
ages = st.sampled_from([0, 0, 5])
queue_lists = st.sampled_from([["default"], ["default", "mail"]])


class Ended(NamedTuple):
    """What one call did to a key: jobs ended, or its breaker was reset."""

    call: int  # its number
    good: int = 0
    bad: int = 0
    probe: int | None = None  # the outcome of the key's probe
    resets: bool = False


@dataclass
class Key:
    """What a limit allows, and its current state."""

    concurrency: int | None = None
    rate: float | None = None
    per: float = 1
    burst: float = 0
    after: int | None = None
    pause: float = 0
    cap: float = 0
    paused: bool = False
    running: int = 0
    tokens: float | None = None  # None: the bucket is full
    tokens_at: datetime | None = None
    streak: int = 0
    opens: int = 0
    open_until: datetime | None = None
    probe: uuid.UUID | None = None
    ended: list[Ended] = field(default_factory=list)  # not folded in yet

    @property
    def says(self) -> bool:
        """Return whether there is anything to count."""
        return self.concurrency is not None or bool(self.rate or self.after or self.paused)

    @property
    def strict(self) -> bool:
        """Return whether a claim is a start: nothing is claimed ahead under a rate or a breaker."""
        return bool(self.rate or self.after)

    def allow(self, rule: dict[str, Any]) -> None:
        """Count the time since the last start at the new rate."""
        self.concurrency, self.rate = rule.get("concurrency"), rule.get("rate")
        self.per, self.burst = rule.get("per", 1), rule.get("burst", 0)
        self.after, self.pause, self.cap = (rule.get(f"breaker_{name}", 0) for name in ("after", "pause", "cap"))

    def tokens_now(self, now: datetime) -> float:
        if self.tokens is None:
            return self.burst
        return min(self.burst, self.tokens + (now - self.tokens_at).total_seconds() * (self.rate or 0) / self.per)

    def why_not(self, now: datetime) -> str | None:
        """Return why nothing more may start now."""
        if self.paused:
            return "paused"
        if self.concurrency is not None and self.running >= self.concurrency:
            return f"{self.running} of {self.concurrency} run"
        if self.rate and self.tokens_now(now) < 1 - 1e-6:
            return f"{self.tokens_now(now):.3f} tokens are left"
        if self.after and self.open_until is not None and (self.open_until > now or self.probe is not None):
            return f"open until {self.open_until}, probe {self.probe}"
        return None

    def start(self, now: datetime, id_: uuid.UUID) -> None:
        self.running += 1
        self.tokens, self.tokens_at = (self.tokens_now(now) - 1, now) if self.rate else (None, None)
        if self.after and self.open_until is not None:
            self.probe = id_

    def take_up(self, now: datetime) -> None:
        """Count the calls in their order, if there is a breaker; within one call, and without a breaker, successes
        count before failures."""
        ended = sorted(self.ended)
        if ended and not self.after:
            probes = [each.probe for each in ended if each.probe is not None]
            good, bad = sum(each.good for each in ended), sum(each.bad for each in ended)
            ended = [Ended(0, good, bad, min(probes, default=None), any(each.resets for each in ended))]
        for each in ended:
            self._judge(now, each)
        self.ended = []

    def _judge(self, now: datetime, ended: Ended) -> None:
        if ended.good and (not self.after or self.open_until is None or ended.probe == GOOD):
            self.streak = 0
        self.streak += ended.bad
        if ended.resets:
            self.streak, self.opens, self.open_until, self.probe = 0, 0, None, None
        elif not self.after:
            self.open_until = self.probe = None
        elif self.open_until is None:
            if self.streak >= self.after:
                self.opens, self.open_until = 1, now + timedelta(seconds=self.pause)
        elif ended.probe == GOOD:
            self.opens, self.open_until = 0, None
        elif ended.probe == BAD:
            pause = min(self.pause * 2**self.opens, max(self.cap, self.pause))
            self.opens, self.open_until = self.opens + 1, now + timedelta(seconds=pause)
        if ended.probe is not None:
            self.probe = None


@dataclass
class Job:
    """What the model knows of a job that has not ended."""

    id: uuid.UUID
    tenant: str | None
    task: str
    queue: str
    priority: int
    keys: tuple[str, ...]
    attempts: int = 0
    taken: Taken | None = None
    counted: tuple[str, ...] = ()  # the keys its claim was counted under
    expires_at: datetime | None = None

    @property
    def every_key(self) -> tuple[str, ...]:
        return Taken(self.id, 0, self.tenant, self.queue, self.task, 0, 0, self.keys).every_key

    @property
    def plain(self) -> bool:
        return self.tenant is None and not self.keys
