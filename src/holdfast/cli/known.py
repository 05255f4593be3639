"""Warnings about unknown keys, queues, tasks and tenants, so that a typo does not look like success."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from holdfast.cli import render
from holdfast.cli.database import Database
from holdfast.errors import UsageError

SHOWN = 10


def warn_of_unknown(db: Database, key: str) -> None:
    """Warn if a key is unknown, and suggest the nearest one. Call it before the change."""
    if "{" in key or db.run(db.calls.limits.is_known(key)):
        return
    kind, _, name = key.partition(":")
    if kind == "queue":
        queues = db.run(db.calls.queues.names())
        _warn_unless_in(queues, key, name)
    elif kind == "task":
        tasks = db.run(db.calls.queues.task_queues())
        _warn_unless_in(tasks, key, name)
    elif kind != "tenant":  # tenants are recorded in jobs only
        nearest = next(_suggestions(db, key), None)
        hint = f"; did you mean {nearest}?" if nearest else _rules(db)
        text = f"warning: {key} matches no declared limit, and no job has been claimed under it yet{hint}"
        render.note(text, "yellow")


def check_queue(db: Database, queue: str) -> None:
    """Raise UsageError if a queue is unknown, and suggest the nearest one."""
    names = db.run(db.calls.queues.names())
    if queue not in names:
        known = f"; known: {', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}" if names else ""
        hint = near(queue, names) or known
        raise UsageError(f"unknown queue {queue}: it has no jobs, no worker and no task{hint}")


def warn_of_unknown_queue(db: Database, queue: str | None) -> None:
    """Warn if a queue is unknown, and suggest the nearest one."""
    if queue is not None and queue not in (names := db.run(db.calls.queues.names())):
        render.note(f"warning: unknown queue {queue}{near(queue, names)}", "yellow")


def near(name: str, known: Collection[str]) -> str:
    """Return a hint with the nearest known name, or an empty text."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _warn_unless_in(names: Collection[str], key: str, name: str) -> None:
    if name not in names:
        kind = key.partition(":")[0]
        hint = near(key, [f"{kind}:{each}" for each in names])
        render.note(f"warning: no worker has registered {key} yet{hint}", "yellow")


def _suggestions(db: Database, name: str) -> Iterator[str]:
    """Yield known keys that end in the given name or in a similar one."""
    queues, tasks = db.run(db.calls.queues.names()), db.run(db.calls.queues.task_queues())
    if name in queues:
        yield f"queue:{name}"
    if name in tasks:
        yield f"task:{name}"
    if db.run(db.calls.limits.has_tenant(name)):
        yield f"tenant:{name}"
    filled = [re.sub(r"\{[^}]*\}", lambda _: name, rule["template"]) for rule in db.run(db.calls.limits.rules())]
    yield from db.run(db.calls.limits.existing(filled))
    everything = [*(f"queue:{each}" for each in queues), *(f"task:{each}" for each in tasks)]
    endings = {each.partition(":")[2]: each for each in everything}
    yield from (endings[each] for each in difflib.get_close_matches(name, endings, n=1))


def _rules(db: Database) -> str:
    rules = [rule["template"] for rule in db.run(db.calls.limits.rules())]
    return f"; keys are queue:NAME, task:NAME, tenant:NAME{''.join(f', {rule}' for rule in rules[:SHOWN])}"
