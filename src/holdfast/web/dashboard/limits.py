"""Limits, breakers and pauses: use against limit, and changes while jobs run, with what was before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from holdfast.model.action import ActionInfo
from holdfast.model.limit import LimitInfo
from holdfast.store.call import Row
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.pauses import Minutes
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Amount, Key, Prefix, Query, Whole
from holdfast.web.problems import Problem
from holdfast.web.routing import EXPLAINS, OPERATES

section = Section("Limits", "/limits", key="l", needs=EXPLAINS)
MOST = 100  # keys shown
CHANGES = 20  # changes shown of a key
EVENTS = 50  # shown of a breaker
DID = {
    "opened": "opened",
    "reopened": "stayed open: its probe failed",
    "closed": "closed: its probe succeeded",
    "reset": "closed by an operator",
}
SLOW = 5.0  # seconds for which rules are shared
NUMBERS = {
    "concurrency": "Jobs at once",
    "weight": "Weight",
    "rate": "Starts",
    "per": "in seconds",
    "burst": "Burst",
    "breaker_after": "Breaker: failures in a row",
    "breaker_pause": "First pause, seconds",
    "breaker_cap": "Longest pause, seconds",
}
Numbers = Mapping[str, float | None]


class ListLimits(Query):
    prefix: Prefix = ""
    busy: bool = False


class WhichKey(Query):
    key: Key


class OneKey(ReasonForm, kw_only=True):
    key: Key


class KeyPause(OneKey):
    minutes: Minutes | None = None


class LimitForm(OneKey):
    """The numbers that operators set for a key, and as JSON those that the form showed: the difference is changed."""

    shown: Annotated[str, Meta(max_length=1000)] = "{}"
    concurrency: Whole | None = None
    rate: Amount | None = None
    per: Amount | None = None
    burst: Amount | None = None
    breaker_after: Whole | None = None
    breaker_pause: Amount | None = None
    breaker_cap: Amount | None = None
    weight: Amount | None = None


@section.page("/limits", "limits.html", EXPLAINS)
async def show(visit: Visit, query: ListLimits) -> Values:
    """Show the keys, those first under which nothing can start, and the limits that code declares."""
    calls = visit.calls.limits
    listed = calls.list(query.prefix, busy=query.busy, limit=MOST + 1, busiest_first=True)
    keys, rules = await asyncio.gather(visit.shared(listed, 2.0), visit.shared(calls.rules(), SLOW))
    return {
        "title": "Limits",
        "limits": [(each, state(each)) for each in keys[:MOST]],
        "more": len(keys) > MOST,
        "rules": rules,
        "query": query,
        "words": words,
        "present": present,
    }


@section.page("/limits/key", "limit.html", EXPLAINS)
async def show_key(visit: Visit, query: WhichKey) -> Values:
    """Show one key, or the template of a rule: the values in force, where they come from, and what changed them."""
    calls = visit.calls
    found, rules, changes, breaker, warning = await asyncio.gather(
        visit.run(calls.limits.read([query.key])),
        visit.shared(calls.limits.rules(), SLOW),
        log(visit, query.key),
        visit.run(calls.limits.breaker_history(query.key, EVENTS)),
        visit.hf.limits.awarning(query.key),
    )
    limit = next(iter(found), None)
    declared = {each["template"]: each for each in rules}
    rule = declared.get(query.key) or declared.get(limit.template if limit and limit.template else "")
    own = rule is not None and rule["template"] == query.key
    return {
        "title": query.key[:60],
        "key": query.key,
        "limit": limit,
        "state": state(limit) if limit is not None else "",
        "rule": rule,
        "own": own,
        "warning": warning,
        "words": words,
        "present": present,
        "breaker": breaker,
        "did": DID,
        "changes": [(each, is_change(each)) for each in changes],
        **numbers(query.key, limit, rule, own),
    }


async def log(visit: Visit, key: str) -> Sequence[ActionInfo]:
    """Return what changed a key, as far as the viewer may read the log."""
    if not visit.may(OPERATES):
        return []
    return await visit.run(visit.calls.actions.select(target=key, limit=CHANGES))


def numbers(key: str, limit: LimitInfo | None, rule: Row | None, own: bool) -> Values:
    """Return the numbers of a key: set for it, in force where nothing is set, and the names of those it can have."""
    code = {} if rule is None else present(rule["code"])
    if rule is not None and own:
        override: Mapping[str, Any] = rule["override"]
    else:
        code |= {} if rule is None else rule["override"]
        override = limit.override if limit is not None else {}
    names = (
        [] if key.startswith("order:") else [each for each in NUMBERS if each != "weight" or key.startswith("tenant:")]
    )
    hints = {name: _number(value) for name, value in code.items()}
    return {
        "override": override,
        "shown": msgspec.json.encode(override).decode(),
        "hints": hints,
        "labels": {name: NUMBERS[name] for name in names},
    }


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def words(values: Mapping[str, Any]) -> str:
    """Return numbers as text, in the order of the form."""
    names = [*(each for each in NUMBERS if each in values), *(each for each in values if each not in NUMBERS)]
    return ", ".join(f"{each} {_number(values[each])}" for each in names) or "as in code"


def state(limit: LimitInfo) -> str:
    """Return why no job of a key can start now; empty if some can."""
    if limit.paused:
        return "paused"
    if limit.breaker in ("open", "half-open"):
        return limit.breaker
    if limit.concurrency is not None and limit.running >= limit.concurrency:
        return "full"
    return "rate" if limit.tokens is not None and limit.tokens < 1 else ""


def is_change(action: ActionInfo) -> bool:
    """Return whether an action changed numbers, so that those before can be restored."""
    return action.kind in ("limits.set", "limits.clear")


@section.action("/limits/set", OPERATES)
async def change(visit: Visit, form: LimitForm) -> Done:
    """Change the numbers of a key or a template. Empty fields get the values of the code."""
    shown = _shown(form.shown)
    wanted = {name: getattr(form, name) for name in NUMBERS}
    changed = {name: value for name, value in wanted.items() if value != shown.get(name)}
    if not changed:
        return Done(_page(form.key), "Nothing was changed.")
    await visit.run(visit.calls.limits.set(form.key, changed, visit.caller.name, form.reason))
    visit.forget()
    what = ", ".join(f"{name} {_number(shown.get(name))} → {_number(value)}" for name, value in changed.items())
    return Done(_page(form.key), f"Changed {form.key}: {what}.")


@section.action("/limits/clear", OPERATES)
async def clear(visit: Visit, form: OneKey) -> Done:
    """Remove what operators have set."""
    await visit.run(visit.calls.limits.clear(form.key, visit.caller.name, form.reason))
    visit.forget()
    return Done(_page(form.key), f"Cleared {form.key}: the numbers of the code are in force.")


@section.action("/limits/pause", OPERATES)
async def pause(visit: Visit, form: KeyPause) -> Done:
    """Start no more jobs of a key."""
    seconds = None if form.minutes is None else 60 * form.minutes
    await visit.run(visit.calls.limits.pause(form.key, visit.caller.name, form.reason, seconds))
    visit.forget()
    return Done(_page(form.key), f"Paused {form.key}: no more of its jobs start; running jobs continue.")


@section.action("/limits/resume", OPERATES)
async def resume(visit: Visit, form: OneKey) -> Done:
    """Let jobs of a key start again."""
    was = await visit.run(visit.calls.limits.resume(form.key, visit.caller.name, form.reason))
    visit.forget()
    return Done(_page(form.key), f"Resumed {form.key}." if was else f"{form.key} was not paused.")


@section.action("/limits/reset", OPERATES)
async def reset(visit: Visit, form: OneKey) -> Done:
    """Close a breaker."""
    was = await visit.run(visit.calls.limits.reset_breaker(form.key, visit.caller.name, form.reason))
    visit.forget()
    return Done(_page(form.key), f"Closed the breaker of {form.key}." if was else f"{form.key} has no open breaker.")


def _page(key: str) -> str:
    return f"/limits/key?{urlencode({'key': key})}"


def _shown(text: str) -> Numbers:
    try:
        return msgspec.json.decode(text, type=dict[str, float | None])
    except msgspec.DecodeError:
        raise Problem(422, f"form.shown: expected an object of numbers, got {text[:100]!r}") from None


def _number(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "as in code" if value is None else f"{value:.12g}" if is_number else str(value)
