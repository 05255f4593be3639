"""Why a job does not run, for operators, and the commands that change it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.model.limit import ORDER

_REMEDIES = {  # commands by kind of reason; {name} is a fact of the reason, or the job's id
    "paused": "holdfast resume {key}",
    "rate": "holdfast limits set {key} --rate N --per SECONDS",
    "breaker": "holdfast limits reset {key}",
    "later": "holdfast jobs reschedule {id} --to now",
    "priority": "holdfast jobs prioritize {id} --to 0",
    "no_worker": "holdfast worker MODULE:APP --queues {queue}",
    "no_task": "holdfast worker MODULE:APP --queues {queue}",
    "failed": "holdfast jobs retry {id}",
    "dead": "holdfast jobs retry {id}",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job waits, or its state: `kind` for programs, `text` for people, and the facts."""

    kind: str
    text: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job does not run. `sentence` is a summary; reasons[0] is the main reason. status is None for an unknown
    job. Notes do not block the job."""

    id: str
    status: str | None
    sentence: str
    reasons: list[Reason]
    notes: list[Reason]


def remedies(reason: Reason, job_id: str) -> list[str]:
    """Return the commands that remove a reason, if there are any: each alone is enough."""
    facts = {name: shlex.quote(str(value)) for name, value in {**reason.facts, "id": job_id}.items()}
    if reason.kind == "concurrency":
        return list(_make_room(reason.facts, facts))
    command = _REMEDIES.get(reason.kind)
    return [] if command is None else [command.format_map(facts)]


def _make_room(facts: dict[str, Any], quoted: dict[str, str]) -> Iterator[str]:
    """Yield the commands that let another job of a key start. An order runs one job at a time, whatever is set."""
    if "set_for" in facts:
        yield f"holdfast limits clear {quoted['set_for']} --only concurrency"
        return
    if not facts["key"].startswith(ORDER):
        yield f"holdfast limits set {quoted['key']} --concurrency N"
    holders = [each for each in facts.get("holders", ()) if not each["lost"]]
    if holders:  # the one that has run longest is first
        yield f"holdfast jobs cancel {shlex.quote(holders[0]['id'])}"
