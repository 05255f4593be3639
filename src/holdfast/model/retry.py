"""Retry policies: when a failed job runs again.

A policy is stored with the job as JSON. SQL's retry_delay() applies it, so a job whose worker died is treated like one
whose handler raised. `Retry.delay` computes the same in Python, for display and tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from holdfast.errors import ConfigurationError

DAY = 86_400.0
LONGEST = 315_360_000.0  # ten years: the cap of a policy without one
_HIGHEST_POWER = 60


Rules = tuple[type[BaseException] | str, ...]
"""Errors by exception type, or by the text of their `code`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy; make one with fixed, exponential, table or none."""

    kind: str
    max_attempts: int
    delays: tuple[float, ...] = ()
    factor: float = 2.0
    cap: float = LONGEST
    jitter: float = 0.0
    retry_on: Rules = ()
    fail_on: Rules = ()
    dead_on: Rules = ()

    def __post_init__(self) -> None:
        if not 1 <= self.max_attempts <= 32_000:
            raise ConfigurationError(f"max_attempts must be from 1 to 32000, got {self.max_attempts!r}")
        if any(not 0 <= d <= LONGEST for d in (*self.delays, self.cap)):
            raise ConfigurationError(
                f"retry delays must be from 0 to {LONGEST:g} seconds, got {self.delays} capped at {self.cap}"
            )
        if not 1 <= self.factor <= 100:
            raise ConfigurationError(f"the factor between retry delays must be from 1 to 100, got {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"jitter must be a number from 0 to 1, got {self.jitter!r}")

    @classmethod
    def fixed(cls, delay: float, *, max_attempts: int = 5, jitter: float = 0.0) -> Retry:
        """Return a policy with the same delay before every retry."""
        return cls("fixed", max_attempts, (float(delay),), jitter=jitter)

    @classmethod
    def exponential(
        cls, base: float = 1.0, *, cap: float = DAY, factor: float = 2.0, max_attempts: int = 5, jitter: float = 0.0
    ) -> Retry:
        """Return a policy with delays of base, base x factor, base x factor^2 ... seconds, up to cap."""
        return cls("exponential", max_attempts, (float(base),), float(factor), float(cap), jitter)

    @classmethod
    def table(cls, delays: Sequence[float], *, max_attempts: int | None = None, jitter: float = 0.0) -> Retry:
        """Return a policy with the given delays; the last one repeats. By default, one attempt more than delays."""
        if not delays:
            raise ConfigurationError("a table of retry delays needs at least one; use Retry.none() for no retry")
        attempts = len(delays) + 1 if max_attempts is None else max_attempts
        return cls("table", attempts, tuple(map(float, delays)), jitter=jitter)

    @classmethod
    def none(cls) -> Retry:
        """Return a policy with a single attempt."""
        return cls("none", 1)

    def on(
        self,
        *,
        retry: Sequence[type[BaseException] | str] = (),
        fail: Sequence[type[BaseException] | str] = (),
        dead: Sequence[type[BaseException] | str] = (),
    ) -> Retry:
        """Return the policy with rules for errors, by exception type or by error code.

        `dead` errors end the job as dead, `fail` errors as failed, without a retry. With `retry`, only those errors are
        retried, and all other errors fail. The first match counts, in the order dead, fail, retry.
        """
        for rule in (*retry, *fail, *dead):
            check_rule(rule)
        return replace(self, retry_on=tuple(retry), fail_on=tuple(fail), dead_on=tuple(dead))

    def outcome(self, error: BaseException, code: str | None) -> str | None:
        """Return the outcome of an error: error (retried while attempts are left), failed, dead, or None if no rule
        applies."""
        if matches(self.dead_on, error, code):
            return "dead"
        if matches(self.fail_on, error, code):
            return "failed"
        if not self.retry_on:
            return None
        return "error" if matches(self.retry_on, error, code) else "failed"

    def delay(self, attempt: int) -> float:
        """Return the seconds between the failure of an attempt and the next one, without jitter."""
        step = max(attempt, 1) - 1
        if self.kind == "none":
            return 0.0
        if self.kind == "exponential":
            return min(self.cap, self.delays[0] * self.factor ** min(step, _HIGHEST_POWER))
        return min(self.cap, self.delays[min(step, len(self.delays) - 1)])

    def as_json(self) -> dict[str, Any]:
        """Return the form that SQL's retry_delay() reads."""
        shape: dict[str, Any] = {"kind": self.kind, "cap": self.cap, "jitter": self.jitter}
        if self.kind == "fixed":
            shape["delay"] = self.delays[0]
        elif self.kind == "exponential":
            shape |= {"base": self.delays[0], "factor": self.factor}
        elif self.kind == "table":
            shape["delays"] = list(self.delays)
        return shape


class ErrorTable:
    """Outcomes of errors for a whole application, by code or exception type. A task's own rules come first."""

    _OUTCOMES: ClassVar = {"retry": "error", "fail": "failed", "dead": "dead"}

    def __init__(self) -> None:
        self._rules: dict[type[BaseException] | str, str] = {}

    def update(self, rules: Mapping[type[BaseException] | str, str]) -> None:
        """Add rules; later ones win."""
        for rule, meaning in rules.items():
            check_rule(rule)
            if meaning not in self._OUTCOMES:
                raise ConfigurationError(f"an error must mean 'retry', 'fail' or 'dead', got {meaning!r} for {rule!r}")
            self._rules[rule] = self._OUTCOMES[meaning]

    def outcome(self, error: BaseException, code: str | None) -> str:
        """Return the outcome of an error: by its code first, then by its type and base classes."""
        for key in (code, *type(error).__mro__):
            if key in self._rules:
                return self._rules[key]
        return "error"


def check_policy(retry: Any) -> None:
    """Raise ConfigurationError unless this is a policy; not every caller has a type checker."""
    if not isinstance(retry, Retry):
        raise ConfigurationError(f"retry must be a policy such as Retry.fixed(60, max_attempts=3), got {retry!r}")


def check_rule(rule: Any) -> None:
    """Raise ConfigurationError unless this names an error."""
    if not (isinstance(rule, str) or (isinstance(rule, type) and issubclass(rule, BaseException))):
        raise ConfigurationError(f"errors must be named by exception type or by code, got {rule!r}")


def matches(rules: Rules, error: BaseException, code: str | None) -> bool:
    """Return whether one of the rules names this error."""
    return any(rule == code if isinstance(rule, str) else isinstance(error, rule) for rule in rules)


DEFAULT = Retry.exponential(base=2, cap=3600, max_attempts=5, jitter=0.2)
