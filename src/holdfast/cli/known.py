"""Which keys, queues, tasks and tenants the database has heard of: a slip of the fingers must not look like success."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from holdfast.cli import render
from holdfast.cli.database import Database
from holdfast.errors import UsageError

SHOWN = 10


def warn_of_unknown(db: Database, key: str) -> None:
    """Says so, with what may have been meant, where nothing is known of a key; to be asked before it is changed."""
    if "{" in key or db.run(db.flow.is_known(key)):
        return
    kind, _, name = key.partition(":")
    if kind == "queue":
        queues = db.run(db.flow.queue_names())
        _warn_unless_in(queues, key, name)
    elif kind == "task":
        tasks = db.run(db.inspect.task_queues())
        _warn_unless_in(tasks, key, name)
    elif kind != "tenant":  # those are not kept anywhere but in jobs
        meant = next(_meant(db, key), None)
        hint = f"; did you mean {meant}?" if meant else _rules(db)
        render.tell(f"warning: {key} fits no rule of limits and no job was claimed under it yet{hint}", "yellow")


def check_queue(db: Database, queue: str) -> None:
    """Raises where nothing is known of a queue, with what may have been meant."""
    names = db.run(db.flow.queue_names())
    if queue not in names:
        known = f"; known are: {', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}" if names else ""
        hint = near(queue, names) or known
        raise UsageError(f"nothing is known of queue {queue}: it has no jobs, no worker and no task{hint}")


def warn_of_unknown_queue(db: Database, queue: str | None) -> None:
    """Says that nothing is known of a queue, with what may have been meant."""
    if queue is not None and queue not in (names := db.run(db.flow.queue_names())):
        render.tell(f"warning: nothing is known of queue {queue}{near(queue, names)}", "yellow")


def near(name: str, known: Collection[str]) -> str:
    """What may have been meant, for the end of a sentence."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _warn_unless_in(names: Collection[str], key: str, name: str) -> None:
    if name not in names:
        kind = key.partition(":")[0]
        hint = near(key, [f"{kind}:{each}" for each in names])
        render.tell(f"warning: no worker has made {key} known yet{hint}", "yellow")


def _meant(db: Database, name: str) -> Iterator[str]:
    """Keys that end in what was given, or nearly so."""
    queues, tasks = db.run(db.flow.queue_names()), db.run(db.inspect.task_queues())
    if name in queues:
        yield f"queue:{name}"
    if name in tasks:
        yield f"task:{name}"
    if db.run(db.flow.has_tenant(name)):
        yield f"tenant:{name}"
    filled = [re.sub(r"\{[^}]*\}", lambda _: name, rule["template"]) for rule in db.run(db.flow.rules())]
    yield from db.run(db.flow.existing(filled))
    everything = [*(f"queue:{each}" for each in queues), *(f"task:{each}" for each in tasks)]
    endings = {each.partition(":")[2]: each for each in everything}
    yield from (endings[each] for each in difflib.get_close_matches(name, endings, n=1))


def _rules(db: Database) -> str:
    rules = [rule["template"] for rule in db.run(db.flow.rules())]
    return f"; keys are queue:NAME, task:NAME, tenant:NAME{''.join(f', {rule}' for rule in rules[:SHOWN])}"
