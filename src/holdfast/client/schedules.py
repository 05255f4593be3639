"""Periodic jobs: `hf.schedules`."""

from __future__ import annotations

import builtins

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UnknownSchedule
from holdfast.model.schedule import ScheduleInfo
from holdfast.store.call import Call


class Schedules(Noun):
    """`hf.schedules`: what workers have registered. `task.schedule(...)` declares one."""

    def _list(self) -> Call[builtins.list[ScheduleInfo]]:
        """Return all registered schedules, by name."""
        return self._calls.schedules.list()

    list, alist = operation(_list)

    def _pause(self, name: str, *, by: str | None = None, reason: str | None = None) -> Steps[None]:
        """Pause a schedule until it is resumed. Slots that pass meanwhile are skipped."""
        if not (yield self._calls.schedules.pause(name, paused=True, by=by, reason=reason)):
            yield from self._unknown(name)

    pause, apause = operation(_pause)

    def _resume(self, name: str, *, by: str | None = None, reason: str | None = None) -> Steps[None]:
        """Resume a paused schedule with its next slot."""
        if not (yield self._calls.schedules.pause(name, paused=False, by=by, reason=reason)):
            yield from self._unknown(name)

    resume, aresume = operation(_resume)

    def _run(self, name: str, *, by: str | None = None, reason: str | None = None) -> Steps[str]:
        """Enqueue the job of a schedule once, now, besides its slots. Return the job's id."""
        job: str | None = yield self._calls.schedules.run(name, by, reason)
        if job is None:
            yield from self._unknown(name)
        return str(job)

    run, arun = operation(_run)

    def _remove(self, name: str, *, by: str | None = None, reason: str | None = None) -> Steps[None]:
        """Remove a schedule. A worker whose code declares it registers it again when it starts."""
        if not (yield self._calls.schedules.remove(name, by, reason)):
            yield from self._unknown(name)

    remove, aremove = operation(_remove)

    def _unknown(self, name: str) -> Steps[None]:
        known: builtins.list[ScheduleInfo] = yield self._calls.schedules.list()
        raise UnknownSchedule(name, [each.name for each in known])
