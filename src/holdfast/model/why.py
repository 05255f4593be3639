"""Why a job does not run, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
