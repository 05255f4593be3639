"""`holdfast drain`: wait until the jobs that are in a queue now have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.database import Database
from holdfast.cli.known import check_queue
from holdfast.cli.options import AsJson, seconds
from holdfast.store.queues import Left

LOOK_EVERY = 0.3
LOOK_SHARE = 10  # a count is followed by a pause this many times as long, because counting a long queue is slow
REPORT_EVERY = 10.0
LEFT_SHOWN = 5


def drain(
    db: Database,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name, as mail or queue:mail.")],
    *,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after 90s, 10m, 1h30m ... Default: never.")
    ] = None,
    later: Annotated[bool, typer.Option("--later", help="Wait for delayed and snoozed jobs too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Wait until every job that is in a queue now has ended; exit 0, or 1 when time is up, with what is left.

    Jobs that are enqueued later do not count; retries of those that are
    there do. This only watches: Ctrl-C leaves the queue alone.
    """
    given = None if timeout is None else seconds(timeout, "--timeout")
    queue = queue.removeprefix("queue:")
    watch = Watch(db, queue, later)
    if watch.is_empty:
        check_queue(db, queue)
    _warn(db, queue)
    try:
        done = _follow(watch, given)
    except KeyboardInterrupt:
        render.note(f"no longer watching; queue {queue} goes on")
        raise typer.Exit(130) from None
    ids = [] if done else db.run(db.calls.queues.some_left(queue, watch.since, limit=LEFT_SHOWN))
    if as_json:
        render.emit_json(watch.result(done, ids))
    else:
        _report(watch, done, ids)
    if not done:
        raise typer.Exit(1)


class Watch:
    """The jobs that were in the queue at the start, and how many are left."""

    def __init__(self, db: Database, queue: str, later: bool) -> None:
        self.queue = queue
        self._db = db
        self.later = later
        self._began = time.monotonic()
        self.took = 0.0
        self.found = db.run(db.calls.queues.left(queue, None))
        self.since: datetime = self.found.at
        self.total = self.left

    @property
    def left(self) -> int:
        """Jobs that have not ended; delayed ones only with --later."""
        found: Left = self.found
        return found.waiting + found.running + found.retrying + (found.delayed if self.later else 0)

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no jobs at all."""
        return not self.left and not self.found.delayed

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def look(self) -> int:
        """Count again; return how many are left."""
        before = time.monotonic()
        self.found = self._db.run(self._db.calls.queues.left(self.queue, self.since))
        self.took = time.monotonic() - before
        return self.left

    def result(self, done: bool, ids: list[str]) -> dict[str, Any]:
        """Return the result for --json."""
        counts = {name: getattr(self.found, name) for name in ("waiting", "running", "retrying", "delayed")}
        outcome = "drained" if done else "timed out"
        return {
            "queue": self.queue,
            "outcome": outcome,
            "jobs": self.total,
            "left": self.left,
            **counts,
            "seconds": round(self.seconds, 3),
            "ids": ids,
        }


def _warn(db: Database, queue: str) -> None:
    """Warn of what would make it wait forever."""
    key = f"queue:{queue}"
    if any(each.key == key and each.paused for each in db.run(db.calls.limits.list(key, busy=True, limit=10))):
        render.note(f"warning: {key} is paused; to go on: holdfast resume {key}", "yellow")
    if not any(queue in w["queues"] and w["alive"] for w in db.run(db.calls.workers.list())):
        start = f"holdfast worker ... --queues {queue}"
        render.note(f"warning: no live worker serves queue {queue}; start one: {start}", "yellow")


def _follow(watch: Watch, timeout: float | None) -> bool:
    """Return whether the queue was drained in time. Show progress live on a terminal, else as occasional lines."""
    if not render.err().is_terminal:
        return _until_empty(watch, timeout, Lines().show)
    from rich.live import Live

    with Live(console=render.err(), transient=True, auto_refresh=False) as live:
        return _until_empty(watch, timeout, lambda it: live.update(_line(it), refresh=True))


def _until_empty(watch: Watch, timeout: float | None, show: Callable[[Watch], None]) -> bool:
    left = watch.left
    for pause in _pauses(watch, timeout):
        if not left:
            return True
        show(watch)
        time.sleep(pause)
        left = watch.look()
    return not left


def _pauses(watch: Watch, timeout: float | None) -> Iterator[float]:
    """Yield the pauses between counts, until time is up."""
    while timeout is None or watch.seconds < timeout:
        pause = max(LOOK_EVERY, watch.took * LOOK_SHARE)
        yield pause if timeout is None else max(min(pause, timeout - watch.seconds), 0)


class Lines:
    """Progress for logs: a line at the start and then every REPORT_EVERY seconds."""

    def __init__(self) -> None:
        self._due = 0.0

    def show(self, watch: Watch) -> None:
        """Print a line if one is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + REPORT_EVERY
            render.err().print(_line(watch))


def _line(watch: Watch) -> Text:
    done = max(watch.total - watch.left, 0)
    parts = [render.bar(done, watch.total, width=20), Text(f"{done:,} of {watch.total:,}"), Text(_what_is_left(watch))]
    parts += [Text(f"about {render.duration(max(1, watch.seconds / done * watch.left))} left")] if done else []
    line = Text("  ").join([*parts, Text(render.printable(watch.queue))])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _what_is_left(watch: Watch) -> str:
    found = watch.found
    counts = {"wait": found.waiting, "run": found.running, "to be retried": found.retrying}
    if watch.later:
        counts["delayed"] = found.delayed
    text = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    return text + (f" ({found.delayed:,} delayed not counted; --later)" if found.delayed and not watch.later else "")


def _report(watch: Watch, done: bool, ids: list[str]) -> None:
    after = render.duration(watch.seconds)
    if done:
        render.echo(f"queue {watch.queue} is drained: {render.plural(watch.total, 'job')} ended in {after}", "green")
        if watch.found.delayed:
            render.note(
                f"not waited for: {render.plural(watch.found.delayed, 'delayed job')}; --later waits for them too"
            )
        return
    render.echo(
        f"after {after}, {watch.left:,} of {render.plural(watch.total, 'job')} left: {_what_is_left(watch)}", "yellow"
    )
    if ids:
        render.note(f"see what holds one up: holdfast why {ids[0]}")
