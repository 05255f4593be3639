"""Calls on queues: names, counts, and what is left in them."""

from __future__ import annotations

import builtins
from datetime import datetime

from holdfast.model.job import MOST_COUNTED, Left
from holdfast.store.call import Call, Row, dicts, firsts, mapping, one_dict

QUEUE = "coalesce(s.options ->> 'queue', 'default')"  # of a schedule `s`
_SCAN = 1000  # waiting jobs and queues that unknown_tasks() reads


class QueueCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def list(self) -> Call[builtins.list[Row]]:
        """Return the queues that have jobs or are paused: counts by state, which counts are estimates, and the pause
        with its author, reason and end."""
        names = ("queue", "ready", "running", "later", "dead", "oldest_wait", "estimated", "paused")
        return Call(
            "SELECT coalesce(q.queue, p.queue), coalesce(ready, 0), coalesce(running, 0), coalesce(later, 0), "
            "coalesce(dead, 0), oldest_wait, coalesce(estimated, '{}'), p.pause "
            f"FROM {self.schema}.queue_depth q FULL JOIN {self._pauses()} ON p.queue = q.queue ORDER BY 1",
            (),
            lambda rows: [dict(zip(names, row, strict=True)) for row in rows],
        )

    def pauses(self) -> Call[dict[str, Row]]:
        """Return the pauses of queues, by their names."""
        return Call(f"SELECT queue, pause FROM {self._pauses()}", (), mapping)

    def _pauses(self) -> str:
        return (
            "(SELECT substr(key, 7) AS queue, jsonb_build_object('since', paused_at, 'until', paused_until, "
            f"'by', paused_by, 'reason', paused_reason) AS pause FROM {self.schema}.limit_use "
            "WHERE starts_with(key, 'queue:') AND paused) p"
        )

    def names(self, *, of_workers: bool = True) -> Call[builtins.list[str]]:
        """Return the queues with due or running jobs, a task or a schedule; with `of_workers`, also those served."""
        served = f"UNION SELECT unnest(queues) FROM {self.schema}.workers " if of_workers else ""
        return Call(
            f"{self._queues_of_jobs()} SELECT queue::text FROM names WHERE queue IS NOT NULL {served}"
            f"UNION SELECT queue::text FROM {self.schema}.tasks "
            f"UNION SELECT {QUEUE} FROM {self.schema}.schedules s ORDER BY 1",
            (),
            firsts,
        )

    def left(self, queue: str, since: datetime | None) -> Call[Left]:
        """Count the jobs of a queue that were enqueued before a time, or now, and have not ended."""
        live, later = f"{self.schema}.live", f"{self.schema}.later"
        return Call(
            f"""SELECT t.at,
                    (SELECT ARRAY[count(*) FILTER (WHERE token IS NULL), count(token)]
                     FROM {live} WHERE queue = %s AND created_at <= t.at),
                    (SELECT ARRAY[count(*) FILTER (WHERE attempt > 0 OR last_error IS NOT NULL),
                                  count(*) FILTER (WHERE attempt = 0 AND last_error IS NULL)]
                     FROM {later} WHERE queue = %s AND created_at <= t.at)
                FROM (SELECT coalesce(%s::timestamptz, {self.schema}.clock()) AS at) t""",
            (queue, queue, since),
            lambda rows: Left(rows[0][0], *rows[0][1], *rows[0][2]),
        )

    def some_left(self, queue: str, since: datetime, *, limit: int) -> Call[builtins.list[str]]:
        """Return some of those jobs, waiting ones first."""
        return Call(
            f"SELECT id::text FROM {self.schema}.live WHERE queue = %s AND created_at <= %s "
            "ORDER BY token IS NOT NULL, run_at, id LIMIT %s",
            (queue, since, limit),
            firsts,
        )

    def task_queues(self) -> Call[dict[str, str]]:
        """Return the queue of each task that a worker has registered."""
        return Call(f"SELECT name, queue FROM {self.schema}.tasks", (), mapping)

    def unserved(self) -> Call[builtins.list[Row]]:
        """Return queues that no live worker serves, with their due jobs, counted up to MOST_COUNTED + 1.

        The names come from a skip scan of the fetch index, so the backlog of other queues costs nothing.
        """
        live = f"{self.schema}.live"
        return dicts(
            f"""{self._queues_of_jobs()}, served AS (
                    SELECT DISTINCT unnest(queues) AS queue FROM {self.schema}.workers
                    WHERE NOT stopping AND {self.schema}.is_alive(id, heartbeat_at))
                SELECT n.queue, (SELECT count(*) FROM (
                    SELECT FROM {live} l WHERE l.queue = n.queue AND l.token IS NULL LIMIT {MOST_COUNTED + 1}) c)
                FROM names n WHERE n.queue IS NOT NULL AND n.queue NOT IN (SELECT queue FROM served)
                ORDER BY 1""",
            "queue, jobs",
        )

    def unknown_tasks(self) -> Call[builtins.list[Row]]:
        """Return the tasks that no worker has registered, with counts, in a sample: the first jobs of each queue and
        those due soonest. Return nothing before the first worker has registered its tasks."""
        waiting = f"SELECT l.queue, l.task FROM {self.schema}.live l WHERE l.queue = n.queue AND l.token IS NULL"
        known = f"SELECT name FROM {self.schema}.tasks"
        return dicts(
            f"""{self._queues_of_jobs()}
                SELECT queue, task, count(*) FROM (
                    SELECT w.* FROM (SELECT * FROM names WHERE queue IS NOT NULL LIMIT {_SCAN}) n,
                        LATERAL ({waiting} LIMIT {_SCAN}) w
                    UNION ALL (SELECT queue, task FROM {self.schema}.later ORDER BY run_at, id LIMIT {_SCAN})) looked_at
                WHERE task NOT IN ({known}) AND EXISTS ({known}) GROUP BY 1, 2 ORDER BY 3 DESC, 2""",
            "queue, task, jobs",
        )

    def _queues_of_jobs(self) -> str:
        """Return a CTE with the queues of live, read by a skip scan of the fetch index."""
        live = f"{self.schema}.live"
        return f"""WITH RECURSIVE names AS (
                    SELECT min(queue) AS queue FROM {live}
                    UNION ALL
                    SELECT (SELECT min(l.queue) FROM {live} l WHERE l.queue > n.queue)
                    FROM names n WHERE n.queue IS NOT NULL)"""

    def run_tally(self, queue: str, first_id: str) -> Call[builtins.list[tuple[str | None, str, str | None, int]]]:
        """Count the jobs of a queue since an id by tenant, status and worker."""
        return Call(
            f"""SELECT tenant, status::text, locked_by, count(*) FROM {self.schema}.jobs
                WHERE queue = %s AND id >= %s::uuid GROUP BY 1, 2, 3""",
            (queue, first_id),
            lambda rows: [(r[0], r[1], r[2], r[3]) for r in rows],
        )

    def run_summary(self, queue: str, first_id: str) -> Call[Row]:
        """Return counts, run time and waiting times of a queue's jobs since an id."""
        return one_dict(
            f"""SELECT count(*), count(DISTINCT id),
                       count(*) FILTER (WHERE status IN ('succeeded', 'failed', 'dead', 'canceled')),
                       extract(epoch FROM max(finished_at) - min(started_at))::float8,
                       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - run_at)),
                       coalesce(sum(attempts), 0)::int8
                FROM {self.schema}.jobs WHERE queue = %s AND id >= %s::uuid""",
            "rows, jobs, final, seconds, wait_p50, wait_p99, attempts",
            (queue, first_id),
        )
