"""Queues: what waits in them, and which there are: `hf.queues`."""

from __future__ import annotations

import builtins
from datetime import datetime

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import hint
from holdfast.model.job import Left
from holdfast.store.call import Call, Row

SHOWN = 10


class Queues(Noun):
    """`hf.queues`."""

    def _list(self) -> Call[builtins.list[Row]]:
        """Return the queues that have jobs or are paused: counts by state, which of them are estimates, and the pause
        with its author, reason and end."""
        return self._calls.queues.list()

    list, alist = operation(_list)

    def _names(self, *, of_workers: bool = True) -> Call[builtins.list[str]]:
        """Return the queues that have jobs, a task or a schedule; with of_workers, also those that workers serve."""
        return self._calls.queues.names(of_workers=of_workers)

    names, anames = operation(_names)

    def _hint(self, name: str) -> Steps[str | None]:
        """Return None for a queue that is known, or a hint: which may have been meant, or which there are."""
        names: builtins.list[str] = yield self._calls.queues.names()
        if name in names:
            return None
        some = f"; known: {', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}" if names else ""
        return hint(name, names, some)

    hint, ahint = operation(_hint)

    def _of_tasks(self) -> Call[dict[str, str]]:
        """Return the queue of each task that a worker has registered."""
        return self._calls.queues.task_queues()

    of_tasks, aof_tasks = operation(_of_tasks)

    def _left(self, queue: str, since: datetime | None = None) -> Call[Left]:
        """Count the jobs of a queue that were enqueued before a time, or now, and have not ended."""
        return self._calls.queues.left(queue, since)

    left, aleft = operation(_left)

    def _unserved(self) -> Call[builtins.list[Row]]:
        """Return queues that no live worker serves, each with its due jobs, counted up to 10,001."""
        return self._calls.queues.unserved()

    unserved, aunserved = operation(_unserved)

    def _some_left(self, queue: str, since: datetime, *, limit: int) -> Call[builtins.list[str]]:
        """Return the ids of some of those jobs, waiting ones first."""
        return self._calls.queues.some_left(queue, since, limit=limit)

    some_left, asome_left = operation(_some_left)

    def _figures(self) -> Call[Row]:
        """Return the newest snapshot: jobs, rates and waits by queue, task and tenant, workers, slots, its time `at`,
        its `age` in seconds. It costs one row, however many jobs there are."""
        return self._calls.figures.read()

    figures, afigures = operation(_figures)

    def _minutes(self, since: float = 3600) -> Call[builtins.list[Row]]:
        """Return the attempts and the depth of each queue in each minute of the last `since` seconds, oldest first."""
        return self._calls.figures.minutes(since)

    minutes, aminutes = operation(_minutes)

    def _wanted(self, queue: str, *, within: float = 60.0) -> Call[int]:
        """Return how many slots would start the present backlog of a queue in `within` seconds and keep up with its
        rate."""
        return self._calls.figures.wanted_workers(queue, within)

    wanted, awanted = operation(_wanted)
