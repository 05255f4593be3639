"""Workers: which there are, how they do, what they ran, and stopping one: `hf.workers`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UnknownWorker
from holdfast.model.tick import Level, Usage
from holdfast.store.call import Call, Row

DAY = 86_400.0


class Workers(Noun):
    """`hf.workers`."""

    def _list(self) -> Call[builtins.list[Row]]:
        """Return every worker, with the seconds since its last heartbeat, its state (alive, draining, stopping, gone),
        and who asked it to stop, why and when."""
        return self._calls.workers.list()

    list, alist = operation(_list)

    def _running(self, *, limit: int = 10_000) -> Call[builtins.list[Row]]:
        """Return what each worker runs now: jobs, tasks, seconds since the oldest was claimed and until the first lease
        expires. At most `limit` jobs are read."""
        return self._calls.workers.running(limit)

    running, arunning = operation(_running)

    def _stop(self, worker: str, *, now: bool = False, by: str | None = None, reason: str | None = None) -> Steps[str]:
        """Ask one worker to drain: to claim nothing more, finish its jobs and end, as at the first SIGTERM. With now,
        it releases its jobs at once, as at the second. It reads the request every `upkeep` seconds. worker is its id,
        or a prefix of it. Return the id."""
        found: str | None = yield self._calls.workers.stop(worker, now=now, by=by, reason=reason)
        if found is None:
            raise UnknownWorker(worker)
        return found

    stop, astop = operation(_stop)

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
