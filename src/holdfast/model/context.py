"""What a handler may know about the job it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """The running job. A handler asks for it with a parameter annotated `Context`; tests may make one by hand."""

    job_id: str = "00000000-0000-7000-8000-000000000000"
    task: str = ""
    queue: str = "default"
    tenant: str | None = None
    priority: int = 2
    attempt: int = 1
    max_attempts: int = 1
    token: int = 0

    @property
    def last_attempt(self) -> bool:
        """Whether no attempt is left after this one."""
        return self.attempt >= self.max_attempts


CONTEXT = Context()
"""A default for keyword-only context parameters, `*, ctx: Context = CONTEXT`: with it, type checkers do not ask callers
of enqueue for one. A worker always passes the real one."""
