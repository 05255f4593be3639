"""`holdfast drain`: wait until the jobs that are in a queue now have ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.follow import follow, progress_line
from holdfast.cli.options import AsJson, seconds
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.client import Holdfast

POLL_INTERVAL = 0.3
PAUSE_FACTOR = 10  # a count is followed by a pause this many times as long, because counting a long queue is slow
LEFT_SHOWN = 5


def drain(
    hf: Holdfast,
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
    progress = DrainProgress(hf, queue, later)
    if progress.is_empty and (hint := hf.queues.hint(queue)) is not None:
        raise UsageError(f"unknown queue {queue}: it has no jobs, no worker and no task{hint}")
    _warn(hf, queue)
    follow(progress.looks(given), _line, f"queue {queue}")
    done = not progress.left
    ids = [] if done else hf.queues.some_left(queue, progress.since, limit=LEFT_SHOWN)
    if as_json:
        render.emit_json(progress.result(done, ids))
    else:
        _report(progress, done, ids)
    if not done:
        raise typer.Exit(1)


class DrainProgress:
    """The jobs that were in the queue at the start, and how many are left."""

    def __init__(self, hf: Holdfast, queue: str, later: bool) -> None:
        self.queue = queue
        self.later = later
        self._hf = hf
        self._began = time.monotonic()
        self.found = hf.queues.left(queue)
        self.since = self.found.at
        self.total = self.left

    @property
    def left(self) -> int:
        """Jobs that have not ended; delayed ones only with --later."""
        found = self.found
        return found.waiting + found.running + found.retrying + (found.delayed if self.later else 0)

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no jobs at all."""
        return not self.left and not self.found.delayed

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def looks(self, timeout: float | None) -> Iterator[DrainProgress]:
        """Count again and again until no jobs are left or time is up."""
        took = 0.0
        while self.left and (timeout is None or self.seconds < timeout):
            yield self
            pause = max(POLL_INTERVAL, took * PAUSE_FACTOR)
            time.sleep(pause if timeout is None else max(min(pause, timeout - self.seconds), 0))
            before = time.monotonic()
            self.found = self._hf.queues.left(self.queue, self.since)
            took = time.monotonic() - before

    def result(self, done: bool, ids: list[str]) -> dict[str, Any]:
        """Return the result for --json."""
        counts = render.pick(self.found, "waiting, running, retrying, delayed")
        outcome = "drained" if done else "timed out"
        result = {"queue": self.queue, "outcome": outcome, "jobs": self.total, "left": self.left}
        return result | counts | {"seconds": round(self.seconds, 3), "ids": ids}


def _warn(hf: Holdfast, queue: str) -> None:
    """Warn of what would make it wait forever."""
    key = f"queue:{queue}"
    if any(each.key == key and each.paused for each in hf.limits.list(key, busy=True, limit=10)):
        render.note(f"warning: {key} is paused; to continue: holdfast resume {key}", "yellow")
    if not any(queue in each["queues"] and each["alive"] for each in hf.workers.list()):
        start = f"holdfast worker ... --queues {queue}"
        render.note(f"warning: no live worker serves queue {queue}; start one: {start}", "yellow")


def _line(progress: DrainProgress) -> Text:
    done = max(progress.total - progress.left, 0)
    parts = [
        render.bar(done, progress.total, width=20),
        Text(f"{done:,} of {progress.total:,}"),
        Text(_what_is_left(progress)),
    ]
    return progress_line(parts, progress.seconds / done * progress.left if done else None, progress.queue)


def _what_is_left(progress: DrainProgress) -> str:
    found = progress.found
    counts = {"wait": found.waiting, "run": found.running, "to be retried": found.retrying}
    if progress.later:
        counts["delayed"] = found.delayed
    text = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    return text + (f" ({found.delayed:,} delayed not counted; --later)" if found.delayed and not progress.later else "")


def _report(progress: DrainProgress, done: bool, ids: list[str]) -> None:
    after = render.duration(progress.seconds)
    if done:
        render.echo(
            f"queue {progress.queue} is drained: {render.plural(progress.total, 'job')} ended in {after}", "green"
        )
        if progress.found.delayed:
            render.note(
                f"not waited for: {render.plural(progress.found.delayed, 'delayed job')}; --later waits for them too"
            )
        return
    render.echo(
        f"after {after}, {progress.left:,} of {render.plural(progress.total, 'job')} left: {_what_is_left(progress)}",
        "yellow",
    )
    if ids:
        render.note(f"see what holds one up: holdfast why {ids[0]}")
