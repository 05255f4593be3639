"""Calls on errors: groups of failures, the failed attempts of a job, and what its handlers wrote to its log."""

from __future__ import annotations

import builtins
from datetime import datetime

import msgspec

from holdfast.model.failure import AttemptLog, ErrorGroup, FailedAttempt
from holdfast.store.call import Call, Rows
from holdfast.store.select import every, given

_COLUMNS = (
    "fingerprint, task, type, code, message, frame, attempts, dead, first_at, last_at, "
    "example_job::text, example, trend"
)


class ErrorCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def list(self, *, task: str | None = None, limit: int = 50) -> Call[builtins.list[ErrorGroup]]:
        """Return the groups with the latest failures."""
        some = given("task = %s", task)
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.errors WHERE {some.sql} ORDER BY last_at DESC, fingerprint LIMIT %s",
            (*some.params, limit),
            _groups,
        )

    def get(self, fingerprint: str) -> Call[ErrorGroup | None]:
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.errors WHERE fingerprint = %s",
            (fingerprint,),
            lambda rows: next(iter(_groups(rows)), None),
        )

    def dead_ids(self, fingerprint: str, *, limit: int, after: str | None = None) -> Call[builtins.list[str]]:
        """Return the dead jobs of a group in the order of their ids."""
        some = every((given("fingerprint = %s", fingerprint), given("id > %s::uuid", after)))
        return Call(
            f"SELECT id::text FROM {self.schema}.dead WHERE {some.sql} ORDER BY id LIMIT %s",
            (*some.params, limit),
            lambda rows: [row[0] for row in rows],
        )

    def of_job(self, id_: str) -> Call[builtins.list[FailedAttempt]]:
        """Return the last 20 failed attempts of a job, the oldest first."""
        return Call(
            f"SELECT failures FROM {self.schema}.jobs WHERE id = %s::uuid",
            (id_,),
            lambda rows: msgspec.convert((rows[0][0] if rows else None) or [], builtins.list[FailedAttempt]),
        )

    def log(self, id_: str) -> Call[builtins.list[AttemptLog]]:
        """Return what the handlers of a job's last five attempts wrote, the oldest first."""
        return Call(
            f"SELECT attempt, started_at, lines FROM {self.schema}.job_logs WHERE id = %s::uuid ORDER BY token",
            (id_,),
            lambda rows: [AttemptLog.of(*row) for row in rows],
        )


def _groups(rows: Rows) -> list[ErrorGroup]:
    return [ErrorGroup(*[*row[:-1], msgspec.convert(row[-1], dict[datetime, int])]) for row in rows]
