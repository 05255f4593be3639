"""Workers: which there are, how they do, and what they ran: `hf.workers`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime

from holdfast.client.operation import Noun, operation
from holdfast.model.tick import Level, Usage
from holdfast.store.call import Call, Row

DAY = 86_400.0


class Workers(Noun):
    """`hf.workers`."""

    def _list(self) -> Call[builtins.list[Row]]:
        """Return every worker, with the seconds since its last heartbeat and whether it counts as alive."""
        return self._calls.workers.list()

    list, alist = operation(_list)

    def _levels(self) -> Call[builtins.list[Level]]:
        """Return the metrics of the last five minutes and their levels."""
        return self._calls.figures.levels()

    levels, alevels = operation(_levels)

    def _health(self) -> Call[builtins.list[Row]]:
        """Return a summary of each worker's last five minutes."""
        return self._calls.workers.health()

    health, ahealth = operation(_health)

    def _usage(
        self,
        by: Sequence[str] = ("tenant", "task"),
        *,
        since: float | datetime = DAY,
        until: datetime | None = None,
        tenant: str | None = None,
        task: str | None = None,
        limit: int = 100,
    ) -> Call[builtins.list[Usage]]:
        """Return runs, failures, run and queue seconds, summed by some of tenant, task, minute, hour and day; newest
        first, then by run seconds. since is a time, or seconds ago."""
        return self._calls.workers.usage(by, since=since, until=until, tenant=tenant, task=task, limit=limit)

    usage, ausage = operation(_usage)
