"""Changes of many jobs, and what operators did: `hf.actions`."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from holdfast.client import restore
from holdfast.client.operation import Noun, Steps, operation, sleep
from holdfast.errors import HoldfastError, UnknownAction
from holdfast.model import payload
from holdfast.model.action import REST, ActionInfo, ActionProgress, Kind, Preview, Where
from holdfast.model.job import ids as new_ids
from holdfast.model.job import parse_id
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call
from holdfast.store.calls import Calls

LONGEST_REST = 0.5  # seconds between polls of an action


class Actions(Noun):
    """`hf.actions`. The leader's upkeep, and callers that wait, process an action in small steps. It survives crashes
    and changes each job once."""

    def _preview(
        self,
        kind: Kind,
        where: Where,
        *,
        priority: int | None = None,
        queue: str | None = None,
        run_at: datetime | None = None,
    ) -> Call[Preview]:
        """Return how many jobs an action would change now, counted up to 10,001, and ten of them."""
        return self._calls.actions.preview(kind, where, _params(priority, queue, run_at))

    preview, apreview = operation(_preview)

    def _start(
        self,
        kind: Kind,
        where: Where | None = None,
        *,
        ids: Iterable[str] | None = None,
        priority: int | None = None,
        queue: str | None = None,
        run_at: datetime | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Steps[ActionInfo]:
        """Start an action on the jobs that match, or on up to 10,000 ids: retry, discard, cancel, prioritize, move (to
        a queue) or reschedule (at a time). It leaves alone jobs that were enqueued or died after the start."""
        _check(by=by, reason=reason)
        listed = None if ids is None else [parse_id(each) for each in ids]
        return (yield from start_action(self._calls, kind, where, listed, _params(priority, queue, run_at), by, reason))

    start, astart = operation(_start)

    def _get(self, action_id: str) -> Steps[ActionInfo]:
        """Return an action with its progress. Raise UnknownAction if there is none."""
        found: ActionInfo | None = yield self._calls.actions.get(parse_id(action_id))
        if found is None:
            raise UnknownAction(action_id)
        return found

    get, aget = operation(_get)

    def _list(
        self,
        *,
        on_jobs: bool | None = None,
        kind: str | None = None,
        target: str | None = None,
        by: str | None = None,
        state: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Call[builtins.list[ActionInfo]]:
        """Return the newest actions that match all given values: what operators did; with on_jobs, only actions on
        jobs. Pass the last one's id as `before` to read on."""
        _check(kind=kind, target=target, by=by, state=state)
        before = None if before is None else parse_id(before)
        return self._calls.actions.select(
            on_jobs=on_jobs, kind=kind, target=target, by=by, state=state, before=before, limit=limit
        )

    list, alist = operation(_list)

    def _abort(self, action_id: str, *, by: str | None = None, reason: str | None = None) -> Steps[bool]:
        """Stop an action; what it has changed stays changed. Return whether it was running."""
        _check(by=by, reason=reason)
        if (yield self._calls.actions.abort(parse_id(action_id), by, reason)):
            return True
        yield from self._get(action_id)  # raises if there is none
        return False

    abort, aabort = operation(_abort)

    def _join(
        self, action_id: str, timeout: float | None = None, *, on_progress: Callable[[ActionInfo], None] | None = None
    ) -> Steps[ActionInfo]:
        """Work on an action until it has ended, and return it. on_progress is called with it after each step. Raise
        TimeoutError if it has not ended in time; it continues."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            began = time.monotonic()
            worked: ActionProgress = yield self._calls.actions.work(parse_id(action_id))
            rest = (time.monotonic() - began) * REST if worked.more else LONGEST_REST
            info = yield from self._get(action_id)
            if on_progress is not None:
                on_progress(info)
            if info.ended:
                return info
            if ends is not None and time.monotonic() + rest > ends:
                raise TimeoutError(f"action {action_id} has not ended within {timeout:g} s; it continues")
            yield sleep(min(rest, LONGEST_REST))

    join, ajoin = operation(_join)
    after_restore, aafter_restore = restore.after_restore, restore.aafter_restore


def start_action(
    calls: Calls,
    kind: Kind,
    where: Any,
    ids: Sequence[str] | None,
    params: Mapping[str, Any],
    by: str | None,
    reason: str | None,
    *,
    view: View = EVERYTHING,
    work: bool = True,
) -> Steps[ActionInfo]:
    """Start an action and do its first step, which ends a small one. If that step fails, upkeep goes on with it. In a
    caller's transaction, work is False: each step is committed on its own."""
    yield calls.actions.start(id_ := new_ids.make(), kind, where, ids, params, by, reason, view)
    if work:
        with suppress(HoldfastError):
            yield calls.actions.work(id_)
    found: ActionInfo | None = yield calls.actions.get(id_, view)
    if found is None:
        raise UnknownAction(id_)
    return found


def change_dead(
    calls: Calls,
    kind: Literal["retry", "discard"],
    ids: Sequence[str],
    by: str | None,
    reason: str | None,
    *,
    view: View = EVERYTHING,
) -> Steps[list[str]]:
    """Retry or discard failed and dead jobs, recorded if `by` or `reason` is given. Return the ids of those changed."""
    if by is None and reason is None:
        change = calls.dead.retry if kind == "retry" else calls.dead.discard
        changed: list[str] = yield change(ids, view)
        return changed
    outcomes: dict[str, str] = yield calls.actions.act(kind, ids, by, reason, view)
    return [each for each, outcome in outcomes.items() if outcome == "changed"]


def _params(priority: int | None, queue: str | None, run_at: datetime | None) -> dict[str, Any]:
    given = {"priority": priority, "queue": queue, "run_at": run_at}
    return {name: value for name, value in given.items() if value is not None}


def _check(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None:
            payload.check_text(text, name, 1000)
