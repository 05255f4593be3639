"""Actions: changes of many jobs that operators start, and the record of what they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict

STEP = 0.03  # seconds that one step may take
REST = 3.0  # pause after a step, as a multiple of its duration: workers keep most of the database's time
Kind = Literal["retry", "discard", "cancel", "prioritize", "move", "reschedule"]
Change = tuple[str, Any, Any]
"""A name, and its values before and after. None: it had no value, or has none."""


class Where(TypedDict, total=False):
    """A filter of jobs. All that is given must hold; SQL checks it (read_filter)."""

    status: str | list[str]
    task: str
    """A task name, or a prefix such as "mail.*"."""
    queue: str
    tenant: str
    batch: str
    error: str
    """Type or code of the last error."""
    error_group: str
    """The fingerprint of an error group."""
    since: datetime | str
    until: datetime | str
    finished_since: datetime | str
    finished_until: datetime | str
    args: Mapping[str, Any]
    """Arguments that the job must have."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would change: up to 10,001 are counted. complete: whether all jobs were read."""

    matching: int
    complete: bool
    examples: list[str]


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """One row of the `actions` table. params are the values after, before those before, where there are any."""

    id: str
    kind: str
    target: str | None
    by: str
    reason: str | None
    before: dict[str, Any] | None
    params: dict[str, Any]
    filter: dict[str, Any] | None
    state: str
    started_at: datetime
    finished_at: datetime | None
    preview: int | None
    examples: list[str] | None
    scanned: int
    matched: int
    changed: int
    skipped: int
    locked: int
    error: str | None

    @property
    def ended(self) -> bool:
        """Return whether nothing more will change."""
        return self.state != "running"

    @property
    def changes(self) -> list[Change]:
        """The values that differ before and after. A change of a limit keeps the numbers that it does not name."""
        old, new = self.before or {}, self.params
        names = new if self.kind == "limits.set" else {**old, **new}
        return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """The result of one step; id is None if there was nothing to work on. more: call again at once."""

    id: str | None
    state: str | None
    more: bool
