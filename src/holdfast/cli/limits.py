"""`holdfast limits`: list the limits of keys and their use; set, clear and reset them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author, Limit, OptionsFrom
from holdfast.errors import UsageError
from holdfast.model.limit import NUMBERS, BreakerEvent, LimitInfo, LimitNumbers

if TYPE_CHECKING:
    from holdfast.client import Holdfast

group = Commands(invoke_without_command=True)

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key (domain:example.org, tenant:acme, queue:mail) or a rule of all its keys (domain:{domain}).",
    ),
]
EVENTS = "breaker, at, #failures, open for, until, ~by, ~reason"
COLUMNS = "key, use, rate, breaker, ~paused, #throttled, ~note"
NONE = (
    "no limits yet; those declared in code, as in @hf.task(limits=[Limit(KEY, ...)]), appear when a worker has "
    "started and jobs were claimed; see: holdfast limits rules"
)
NEEDS = {"per": "rate", "burst": "rate", "breaker_pause": "breaker_after", "breaker_cap": "breaker_after"}


@group.listing(epilog="Example: holdfast limits --prefix domain: --busy")
def list_limits(
    hf: Holdfast,
    *,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only keys with this prefix, such as domain: or tenant:.")
    ] = "",
    busy: Annotated[bool, typer.Option("--busy", help="Only keys that run or throttle jobs.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List limits by key: how much is in use, rates, breakers, pauses; set, clear and reset them.

    Limits are declared in code, as in
    @hf.task(limits=[Limit("domain:{domain}", concurrency=2)]);
    values set here override the code, apply at once to waiting jobs,
    and stay until they are cleared.

    throttled: how often claims skipped jobs because a key had no room,
    was paused or had an open breaker. It only grows; a job that waits
    long is counted many times.
    """
    found = hf.limits.list(prefix, busy=busy, limit=limit)
    empty = "no key matches" if prefix or busy else NONE
    render.show_list(found, COLUMNS, more, as_json=as_json, head=2, empty=empty)
    if len(found) == limit and not as_json:
        render.note(f"these are the first {limit}; --limit shows more, --prefix and --busy fewer")


def more(it: LimitInfo) -> dict[str, Any]:
    """Return the values of COLUMNS that are no attributes of a limit."""
    cells = {"use": _use(it), "rate": _rate(it), "breaker": _breaker(it), "paused": _paused(it)}
    return cells | {"throttled": it.throttled or None, "note": _note(it)}


def _use(it: LimitInfo) -> Text:
    if it.concurrency is None:
        return Text(f"{it.running:,}")
    return Text(f"{it.running:,} of {it.concurrency:,}", "red" if it.running >= it.concurrency else "")


def _rate(it: LimitInfo) -> str:
    if it.rate is None or it.per is None:
        return ""
    units = {1.0: "/s", 60.0: "/min", 3600.0: "/h"}
    rate = f"{render.number(it.rate)}{units.get(it.per, f' in {render.duration(it.per)}')}"
    return f"{rate}, next in {render.duration(it.next_token)}" if it.next_token else rate


def _breaker(it: LimitInfo) -> Text:
    until = f" until {render.when(it.open_until)}" if it.breaker == "open" and it.open_until else ""
    failures = f" ({render.plural(it.failure_streak, 'failure')})" if it.failure_streak and it.breaker else ""
    return Text(
        f"{it.breaker or ''}{until}{failures}", {"open": "red", "half-open": "yellow"}.get(it.breaker or "", "")
    )


def _paused(it: LimitInfo) -> str:
    if not it.paused:
        return ""
    until = f" until {render.when(it.paused_until)}" if it.paused_until else ""
    return f"by {it.paused_by}{until}" + (f": {it.paused_reason}" if it.paused_reason else "")


def _note(it: LimitInfo) -> str:
    set_by = f"set by {it.changed_by}" if it.changed_by else ""
    weight = f"weight {render.number(it.weight)}" if it.weight is not None else ""
    return ", ".join(filter(None, (weight, set_by)))


@group.command(epilog="Example: holdfast limits show domain:example.org")
def show(hf: Holdfast, key: Key, as_json: AsJson = False) -> None:
    """Show one key: its limits, their use, and when its breaker opened and closed in the last 30 days; exit 1 when it
    is unknown."""
    it, events = hf.limits.get(key), hf.limits.breaker_history(key)
    if it is None and not events:
        render.note(hf.limits.warning(key) or f"no job was claimed under {key}, and nothing is set for it", "yellow")
        raise typer.Exit(1)
    if as_json:
        render.emit_json({"limit": it, "breaker": events})
        return
    if it is not None:
        names = "key, rule=template, use, rate, burst, breaker, paused, throttled, last success=last_success_at, "
        burst = None if it.burst is None else render.number(it.burst)
        render.show_fields(render.pick(it, f"{names}last failure=last_failure_at, note") | more(it) | {"burst": burst})
    render.show_list(events, EVENTS, _event, as_json=False, head=2, empty="its breaker did not open in 30 days")


def _event(it: BreakerEvent) -> dict[str, Any]:
    open_for = None if it.seconds is None else render.duration(it.seconds)
    return {"breaker": it.event, "open for": open_for, "until": it.open_until}


def _numbers(
    *,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="How many may run at once; 0 starts nothing.")
    ] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="How many may start in --per seconds.")] = None,
    per: Annotated[float | None, typer.Option(metavar="SECONDS", help="The period of --rate. Default: 60.")] = None,
    burst: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="How many may start at once after an idle time. Default: what the rate allows in a second.",
        ),
    ] = None,
    breaker_after: Annotated[
        int | None, typer.Option(metavar="N", help="Open the breaker after this many failures in a row.")
    ] = None,
    breaker_pause: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long it stays open; doubled when a probe fails.")
    ] = None,
    breaker_cap: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="The longest time it stays open.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(metavar="N", help="A tenant's share relative to other tenants (tenant:NAME).")
    ] = None,
) -> LimitNumbers:
    return cast("LimitNumbers", {name: value for name, value in locals().items() if value is not None})


Numbers = Annotated[LimitNumbers, OptionsFrom(_numbers)]


@group.command(
    "set", epilog="Example: holdfast limits set domain:example.org --concurrency 4 --rate 30 --per 60 --burst 5"
)
def set_limit(hf: Holdfast, key: Key, *, numbers: Numbers, author: Author, as_json: AsJson = False) -> None:
    """Override the limits of a key, or of all keys of a rule. Options that are not given stay as they are.

    Changes apply at once, to waiting jobs too, until they are cleared.
    """
    if not numbers:
        raise UsageError(f"nothing to change; give an option, as in: holdfast limits set {key} --concurrency 4")
    warn_of_unknown(hf, key)
    _show_change(hf, key, numbers, hf.limits.set(key, **author, **numbers), as_json)


def _show_change(hf: Holdfast, key: str, change: Mapping[str, Any], keys: int, as_json: bool) -> None:
    now = [each for each in hf.limits.list(key, limit=1) if each.key == key]
    rule = [{**each["code"], **each["override"]} for each in hf.limits.rules() if each["template"] == key]
    _warn_of_idle(change, rule[0] if rule else {name: getattr(now[0], name) for name in NUMBERS})
    if as_json:
        render.emit_json({"key": key, "keys": keys, "change": change, "now": now[0] if now else None})
    elif now:
        render.show_list(now, COLUMNS, more, as_json=False, head=2, empty="")
    else:
        render.echo(f"set for {render.plural(keys, 'key')} of {key} and those to come")


def warn_of_unknown(hf: Holdfast, key: str) -> None:
    """Warn if a key is unknown, so that a typo does not look like success. Call it before the change."""
    if (warning := hf.limits.warning(key)) is not None:
        render.note(f"warning: {warning}", "yellow")


def _warn_of_idle(change: Mapping[str, Any], in_force: dict[str, Any]) -> None:
    """Warn of values that have no effect, because the limit they refine is not set."""
    for name, needed in NEEDS.items():
        if change.get(name) is not None and in_force.get(needed) is None:
            option, other = (f"--{each.replace('_', '-')}" for each in (name, needed))
            render.note(f"warning: {option} has no effect without {needed}; set it with {other}", "yellow")


@group.command(epilog="Example: holdfast limits clear domain:example.org")
def clear(
    hf: Holdfast,
    key: Key,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help=f"Only this: {', '.join(NUMBERS)}; may be repeated."),
    ] = None,
    *,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Remove the overrides of a key or a rule, so that the code's limits apply again; exit 1 when there are none."""
    if only:
        warn_of_unknown(hf, key)
        names = [name.replace("-", "_") for name in only]
        _show_change(hf, key, dict.fromkeys(names), hf.limits.clear(key, only=names, **author), as_json)
        return
    keys = hf.limits.clear(key, **author)
    _report(key, "cleared" if keys else "nothing was set", as_json, keys=keys)
    if not keys:
        raise typer.Exit(1)


@group.command(epilog="Example: holdfast limits reset domain:example.org")
def reset(hf: Holdfast, key: Key, author: Author, as_json: AsJson = False) -> None:
    """Close a key's breaker and clear its failures; exit 1 when it was not open."""
    was = hf.limits.reset_breaker(key, **author)
    _report(key, "reset" if was else "was not open", as_json)
    if not was:
        raise typer.Exit(1)


def _report(key: str, outcome: str, as_json: bool, **more: Any) -> None:
    render.show_result({"key": key, "outcome": outcome, **more}, f"{key}: {outcome}", as_json=as_json)


@group.command(epilog="Example: holdfast limits rules --json")
def rules(hf: Holdfast, as_json: AsJson = False) -> None:
    """List the rules of limits: what the code declares, as registered by workers, and their overrides."""
    empty = "no rules; workers register those of their tasks when they start"
    columns = "template, #keys, in code=code, ~set=override, ~by=changed_by"
    render.show_list(hf.limits.rules(), columns, _rule, as_json=as_json, head=2, empty=empty)


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    return {"in code": _words(rule["code"]), "set": _words(rule["override"])}


def _words(values: dict[str, Any]) -> str:
    found = ((name, values.get(name)) for name in NUMBERS)
    return ", ".join(f"{name} {render.number(value)}" for name, value in found if value is not None)


@group.command(epilog="Example: holdfast limits reconcile --repair")
def reconcile(
    hf: Holdfast,
    repair: Annotated[bool, typer.Option("--repair", help="Correct wrong counts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare every key's count with its running jobs; exit 1 when one is wrong and not repaired."""
    found = hf.limits.reconcile(repair=repair)
    empty = "every key counts as many jobs as run under it"
    render.show_list(found, "key, #counted, #running=actual", as_json=as_json, head=3, empty=empty)
    if found and not repair:
        render.note("correct them with: holdfast limits reconcile --repair", "yellow")
        raise typer.Exit(1)
