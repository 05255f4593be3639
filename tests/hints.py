"""What tests of a worker's memory of lanes have in common: rows as claims answer them, and what claims tell."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.worker.lanes import Lanes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LAPPED = {"end": None}


def row(
    seconds: float, number: int, queue: str = "default", priority: int = 2, lane: int = 0, *keys: str
) -> tuple[Any, ...]:
    """One row as Calls.claim answers it: of interest are id, queue, priority, run_at, lane and keys."""
    run_at = (NOON + timedelta(seconds=seconds)).timestamp()
    id_ = str(uuid.UUID(int=number))
    return (id_, 1, "t", "{}", 1, 5, queue, priority, None, run_at, None, None, lane, list(keys) or None)


def learn(
    lanes: Lanes, rows: list[Any], info: dict[str, Any] | None = None, took: tuple[float, float] = (0.0, 0.0)
) -> None:
    lanes.learn(rows, json.dumps(info) if info else None, False, *took)


def lapped(lanes: Lanes, *rows: Any, took: tuple[float, float] = (0.0, 0.0), **infos: Any) -> None:
    """A careful claim that came to the end of every ring."""
    asked = json.loads(lanes.hint(took[0], 10, careful=True))
    learn(lanes, list(rows), {place: LAPPED | infos.get("told", {}) for place in asked}, took)


def quick(lanes: Lanes, now: float = 0.0, limit: int = 10) -> dict[str, Any]:
    """Where the next claim would look, when none of them must be careful."""
    lanes.found(True, now)
    hint: dict[str, Any] = json.loads(lanes.hint(now, limit))
    assert not lanes.careful
    return hint


def place(seconds: float, number: int) -> list[Any]:
    return [(NOON + timedelta(seconds=seconds)).timestamp(), str(uuid.UUID(int=number))]


def numbers(hint: dict[str, Any], where: str = "default/2") -> list[int]:
    """The lanes that a quick claim would visit."""
    return [int(lane) for lane in hint[where]["lanes"].strip("{}").split(",")]


def with_lanes(*numbers: int) -> Lanes:
    lanes = Lanes(["default"])
    lapped(lanes, row(1, 1), *(row(1, 10 + n, lane=n) for n in numbers))
    lanes._lap_at, lanes.careful = float("inf"), False
    return lanes
