"""Pauses of queues, tasks and tenants: the forms, and what they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from holdfast.model.limit import LimitInfo
from holdfast.web.dashboard.form import Form, ReasonForm
from holdfast.web.dashboard.section import Done, Section
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Name
from holdfast.web.routing import OPERATES

Minutes = Annotated[float, Meta(gt=0, le=5_256_000)]  # ten years
MOST = 200  # pauses shown


class Pause(ReasonForm, kw_only=True):
    """A pause of one name: for some minutes, or until it is resumed."""

    name: Name
    minutes: Minutes | None = None


class Resume(Form):
    name: Name


def offer(section: Section, kind: str) -> None:
    """Add the actions that pause and resume a name of a kind, such as one queue."""

    @section.action(f"{section.path}/pause", OPERATES)
    async def pause(visit: Visit, form: Pause) -> Done:
        """Start no more jobs."""
        seconds = None if form.minutes is None else 60 * form.minutes
        await visit.run(visit.calls.limits.pause(f"{kind}:{form.name}", visit.caller.name, form.reason, seconds))
        visit.forget()
        return Done(section.path, f"Paused {form.name}: no more of its jobs start; running jobs continue.")

    @section.action(f"{section.path}/resume", OPERATES)
    async def resume(visit: Visit, form: Resume) -> Done:
        """Let jobs start again."""
        was = await visit.run(visit.calls.limits.resume(f"{kind}:{form.name}", visit.caller.name))
        visit.forget()
        return Done(section.path, f"Resumed {form.name}." if was else f"{form.name} was not paused.")


def by_name(kind: str, keys: Iterable[LimitInfo]) -> dict[str, LimitInfo]:
    """Return keys by the name of their task or tenant."""
    return {each.key.removeprefix(f"{kind}:"): each for each in keys}
