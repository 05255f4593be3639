"""Changes of many jobs: of those selected, or of all that match; their preview and their start."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from holdfast.model.action import Kind, Where
from holdfast.web.actions import begin as begin_action
from holdfast.web.actions import plain
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.search import FILTERS, Search, parse_args
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.signin import Path
from holdfast.web.dashboard.visit import Visit, inside
from holdfast.web.fields import LongText
from holdfast.web.routing import WRITES

section = Section()
Which = Literal["retry", "discard", "cancel"]
WORDS = {"retry": "retried", "discard": "discarded", "cancel": "canceled"}


class Matching(Search, kw_only=True):
    """A change of all jobs that match a filter, as in the list of jobs."""

    kind: Which


class MatchingForm(Matching, kw_only=True):
    reason: LongText | None = None


class Selected(ReasonForm, kw_only=True):
    """A change of jobs by id."""

    kind: Which
    ids: Annotated[list[UUID], Meta(max_length=1000)] | None = None
    next: Path | None = None
    """The list that the jobs were selected in."""


def where_of(given: Matching) -> dict[str, Any]:
    """Return the filter of an action."""
    values = {name: getattr(given, name) for name in FILTERS} | {"args": parse_args(given.args)}
    return {name: plain(value) for name, value in values.items() if value is not None}


@section.page("/actions", "preview.html", WRITES)
async def preview(visit: Visit, query: Matching) -> Values:
    """Show how many jobs a change would concern, before it begins."""
    found = await visit.run(visit.calls.actions.preview(query.kind, where_of(query), {}, visit.view))
    given = {name: value for name, value in visit.given() if name in FILTERS}
    title = f"{query.kind.capitalize()} all that match"
    return {"title": title, "found": found, "given": given, "kind": query.kind, "words": WORDS[query.kind]}


@section.action("/actions", WRITES)
async def begin(visit: Visit, form: MatchingForm) -> Done:
    """Change all jobs that match."""
    where: Any = where_of(form)
    return await start(visit, form.kind, where, form.reason)


@section.action("/actions/selected", WRITES)
async def change_selected(visit: Visit, form: Selected) -> Done:
    """Change the selected jobs at once."""
    back = found if (found := inside(form.next)) != "/" else "/jobs"
    if not form.ids:
        return Done(back, "No job was selected.")
    listed = [str(each) for each in form.ids]
    outcomes = await visit.run(visit.calls.actions.act(form.kind, listed, visit.caller.name, form.reason, visit.view))
    changed = sum(how in ("changed", "canceled", "canceling") for how in outcomes.values())
    left = len(listed) - changed
    rest = f"; {left:,} left as they were" if left else ""
    return Done(back, f"{changed:,} {'job was' if changed == 1 else 'jobs were'} {WORDS[form.kind]}{rest}.")


async def start(visit: Visit, kind: Kind, where: Where, reason: str | None) -> Done:
    """Start to change all jobs that match, and lead to the progress. A small change is done at once."""
    started = await begin_action(visit, kind, where, None, {}, reason)
    visit.forget()
    return Done(f"/audit/{started.id}", "Started.")
