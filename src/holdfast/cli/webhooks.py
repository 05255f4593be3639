"""`holdfast webhooks`: manage endpoints, their secrets and deliveries."""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author, Limit, OptionsFrom, Since, Until, Yes, check_selection, moment, seconds
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.webhook import DeliveryInfo, Endpoint, Redelivered

if TYPE_CHECKING:
    from holdfast.client import Holdfast

LEFT = {
    "unknown": "there is no such delivery",
    "running": "it is being delivered now",
    "disabled": "its endpoint is disabled; first: holdfast webhooks enable ENDPOINT",
}

group = Commands(invoke_without_command=True)


class DeliveryStatus(enum.StrEnum):
    """The status of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


EndpointId = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id.")]
TenantOnly = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only those of this tenant.")]
EndpointOnly = Annotated[str | None, typer.Option("--endpoint", metavar="ID", help="Only those to this endpoint.")]
EventOnly = Annotated[str | None, typer.Option("--event", metavar="ID", help="Only those of this event.")]
TypeOnly = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only those of events of this type.")]
PREFIX = typer.Option(metavar="NAME", help="Prefix of the headers: X-NAME-Signature.")
TIMEOUT = typer.Option(metavar="TIME", help="For a whole delivery.")
DEV = "For development: allow http and private addresses."


def _delivery_filter(
    *,
    endpoint: EndpointOnly = None,
    tenant: TenantOnly = None,
    event: EventOnly = None,
    type_: TypeOnly = None,
    since: Since = None,
    until: Until = None,
) -> dict[str, Any]:
    start, end = moment(since, "--since"), moment(until, "--until")
    return {"endpoint": endpoint, "tenant": tenant, "event": event, "event_type": type_, "since": start, "until": end}


DeliveryWhere = Annotated[dict[str, Any], OptionsFrom(_delivery_filter)]
SecretStdin = Annotated[
    bool, typer.Option("--secret-stdin", help="Read the secret from standard input. Default: generate one.")
]


HELP = "List endpoints; add and change them, rotate their secrets, show deliveries and send them again."


@group.listing(help=HELP, epilog="Example: holdfast webhooks --tenant acme")
@group.command("list", epilog="Example: holdfast webhooks list --tenant acme")
def list_endpoints(hf: Holdfast, tenant: TenantOnly = None, as_json: AsJson = False) -> None:
    """List endpoints."""
    found = hf.webhooks.list(tenant=tenant)
    if as_json:
        render.emit_json([_without_secret(it) for it in found])
        return
    columns = (
        "id, state, ~url, ~tenant, ~events, #failures=failure_streak, last success=last_success_at, "
        "last failure=last_failure_at"
    )
    render.show_list(found, columns, _more, as_json=False, head=3, empty="there are no endpoints")


def _more(it: Endpoint) -> dict[str, Any]:
    return {"state": _state(it), "events": it.events or "all"}


def _state(it: Endpoint) -> str:
    if not it.enabled:
        return "disabled"
    return "enabled" if it.breaker_open_until is None else "breaker open"


@group.command(epilog="Example: holdfast webhooks add https://example.org/hook --tenant acme --event 'order.*'")
def add(
    hf: Holdfast,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to post to; https unless --dev.")],
    *,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Tenant whose events it receives. Default: only events without a tenant."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option("--event", metavar="TYPE", help="A type, or order.* for a kind; may be repeated. Default: all."),
    ] = None,
    prefix: Annotated[str, PREFIX] = "Holdfast",
    timeout: Annotated[str, TIMEOUT] = "30s",
    dev: Annotated[bool, typer.Option("--dev", help=DEV)] = False,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="For people.")] = None,
    secret_stdin: SecretStdin = False,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Add an endpoint; its secret is shown once, now."""
    made = hf.webhooks.add(
        url,
        tenant=tenant,
        events=event or None,
        prefix=prefix,
        timeout=seconds(timeout, "--timeout"),
        dev=dev,
        description=description,
        secret=_typed(secret_stdin),
        **author,
    )
    if as_json:
        render.emit_json(asdict(made))
    else:
        render.echo(f"added endpoint {made.id}")
        _show_secret(made.secret or "")


@group.command(epilog="Example: holdfast webhooks show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(hf: Holdfast, endpoint: EndpointId, as_json: AsJson = False) -> None:
    """Show everything about an endpoint but its secrets."""
    it = hf.webhooks.get(endpoint)
    if as_json:
        render.emit_json(_without_secret(it))
        return
    names = (
        "id, state, reason=disabled_reason, breaker open until, tenant, url, events, header prefix, timeout, "
        "for development, description, valid secrets=secrets, old ones until=old_secrets_until, "
        "failures in a row=failure_streak, last success=last_success_at, last failure=last_failure_at, "
        "added=created_at, changed=updated_at"
    )
    more = {"header prefix": f"X-{it.prefix}-", "timeout": render.duration(it.timeout)}
    render.show_fields(render.pick(it, names) | _more(it) | more | {"for development": "yes" if it.dev else None})


@group.command(epilog="Example: holdfast webhooks update 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --timeout 10s")
def update(
    hf: Holdfast,
    endpoint: EndpointId,
    *,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Where to post to; https unless --dev.")] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event", metavar="TYPE", help="A type, or order.* for a kind; may be repeated. Replaces the list."
        ),
    ] = None,
    all_events: Annotated[bool, typer.Option("--all-events", help="Events of all types.")] = False,
    prefix: Annotated[str | None, PREFIX] = None,
    timeout: Annotated[str | None, TIMEOUT] = None,
    dev: Annotated[bool | None, typer.Option("--dev/--no-dev", help=DEV)] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="For people; '' for none.")] = None,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Change an endpoint; options that are not given stay as they are."""
    if event and all_events:
        raise UsageError("give either --event or --all-events")
    given: dict[str, Any] = {
        "url": url,
        "events": event or None,
        "prefix": prefix,
        "dev": dev,
        "timeout": None if timeout is None else seconds(timeout, "--timeout"),
    }
    change = {name: value for name, value in given.items() if value is not None}
    change |= {"events": None} if all_events else {}
    change |= {} if description is None else {"description": description or None}
    if not change:
        raise UsageError("nothing to change; give an option such as --timeout 10s, see --help")
    changed = hf.webhooks.update(endpoint, **change, **author)
    render.show_result(_without_secret(changed), f"changed endpoint {changed.id}", as_json=as_json)


@group.command(epilog="Example: holdfast webhooks rotate 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --keep-old 2d")
def rotate(
    hf: Holdfast,
    endpoint: EndpointId,
    *,
    keep_old: Annotated[
        str, typer.Option("--keep-old", metavar="TIME", help="How long the previous secrets stay valid.")
    ] = "1d",
    secret_stdin: SecretStdin = False,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint a new secret, shown once, now; the old one stays valid for a while."""
    keep = seconds(keep_old, "--keep-old")
    secret = hf.webhooks.rotate(endpoint, keep_old_for=keep, secret=_typed(secret_stdin), **author)
    until = hf.webhooks.get(endpoint).old_secrets_until
    if as_json:
        render.emit_json({"id": endpoint, "secret": secret, "old_secrets_until": until})
        return
    _show_secret(secret)
    render.note(
        "the old one is no longer valid" if until is None else f"the old one is valid until {render.when(until)}"
    )


@group.command("test", epilog="Example: holdfast webhooks test 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def try_out(
    hf: Holdfast,
    endpoint: EndpointId,
    *,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for the response; 0 does not wait.")
    ] = "40s",
    as_json: AsJson = False,
) -> None:
    """Deliver an event of type holdfast.test to an endpoint, through a worker; exit 1 unless that is done in time."""
    longest = seconds(wait, "--wait")
    id_ = hf.webhooks.test(endpoint)
    it = _waited_for(hf, id_, longest)
    why = hf.jobs.why(id_).sentence if it.status == "PENDING" else None
    if as_json:
        render.emit_json(it)
    elif it.status == "PENDING":
        render.echo(f"delivery {id_} has not ended: {why}")
    else:
        render.echo(f"{it.status.lower()}: " + (it.error or f"the endpoint returned {it.http_status}"))
    if it.status == "FAILED" or (it.status == "PENDING" and longest):
        raise typer.Exit(1)


def _waited_for(hf: Holdfast, id_: str, longest: float) -> DeliveryInfo:
    ends = time.monotonic() + longest
    while (it := _delivery(hf, id_)).status == "PENDING" and time.monotonic() < ends:
        time.sleep(0.1)
    return it


@group.command(epilog="Example: holdfast webhooks deliveries --status FAILED --since 1d")
def deliveries(
    hf: Holdfast,
    where: DeliveryWhere,
    *,
    status: Annotated[
        DeliveryStatus | None, typer.Option("--status", case_sensitive=False, help="Only those with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest deliveries."""
    found = hf.webhooks.deliveries(**where, status=status and str(status), limit=limit)
    columns = (
        "id, status, ~type=event_type, #http=http_status, #tries, ~tenant, made=created_at, delivered=delivered_at, "
        "next try=next_attempt_at, ~error, ~endpoint"
    )
    render.show_list(found, columns, _tries, as_json=as_json, head=4, empty="no deliveries match", limit=limit)


def _tries(it: DeliveryInfo) -> dict[str, Any]:
    return {"tries": f"{it.attempts}/{it.max_attempts}", "error": " ".join((it.error or "").split())}


@group.command(epilog="Example: holdfast webhooks delivery 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def delivery(
    hf: Holdfast, id_: Annotated[str, typer.Argument(metavar="ID", help="The delivery's id.")], as_json: AsJson = False
) -> None:
    """Show what a delivery sent, and the response."""
    it = _delivery(hf, id_)
    if as_json:
        render.emit_json(it)
        return
    body = None if it.response_body is None else it.response_body.decode(errors="backslashreplace")
    names = (
        "id, status, job=job_status, endpoint, tenant, event, type=event_type, attempts, made=created_at, "
        "next try=next_attempt_at, delivered=delivered_at, ended, error, sent=body, http status, response headers, "
        "response"
    )
    more = {
        "attempts": f"{it.attempts} of {it.max_attempts}",
        "ended": None if it.delivered_at else it.finished_at,
        "response": body,
    }
    render.show_fields(render.pick(it, names) | more)


@group.command(epilog="Example: holdfast webhooks redeliver --all --endpoint 018f2c5e-... --since 6h --yes")
def redeliver(
    hf: Holdfast,
    where: DeliveryWhere,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Delivery ids, or --all.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All that match the options below.")] = False,
    status: Annotated[
        DeliveryStatus, typer.Option("--status", case_sensitive=False, help="With --all.")
    ] = DeliveryStatus.FAILED,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again: failed ones with fresh attempts, delivered ones as new ones, waiting ones at once."""
    check_selection(ids, every, where, "give delivery ids, or --all with --endpoint, --tenant, --since or --until")
    if every:
        render.confirm(f"send every {status} delivery that matches again?", yes)
    results = list(
        hf.webhooks.redeliver_all(**where, status=str(status)) if every else hf.webhooks.redeliver(*ids or ())
    )
    _report(results, as_json)


def _report(results: Sequence[Redelivered], as_json: bool) -> None:
    left = [each for each in results if each.outcome in LEFT]
    text = f"{render.plural(len(results) - len(left), 'delivery')} will be sent"
    render.show_result(results, text, as_json=as_json)
    for each in left:
        render.note(f"skipped {each.id}: {LEFT[each.outcome]}", "yellow")
    if left:
        raise typer.Exit(1)


@group.command(epilog="Example: holdfast webhooks enable 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def enable(hf: Holdfast, endpoint: EndpointId, author: Author) -> None:
    """Enable deliveries to an endpoint, and close its breaker."""
    hf.webhooks.enable(endpoint, **author)
    render.echo(f"enabled endpoint {endpoint}")


@group.command(epilog="Example: holdfast webhooks disable 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --reason 'moves'")
def disable(hf: Holdfast, endpoint: EndpointId, author: Author) -> None:
    """Disable deliveries to an endpoint; waiting ones fail when they are due."""
    hf.webhooks.disable(endpoint, **author)
    render.echo(f"disabled endpoint {endpoint}")


@group.command(epilog="Example: holdfast webhooks remove 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f --yes")
def remove(hf: Holdfast, endpoint: EndpointId, *, author: Author, yes: Yes = False) -> None:
    """Remove an endpoint and its secrets."""
    it = hf.webhooks.get(endpoint)
    render.confirm(f"remove endpoint {it.id} ({it.url})?", yes)
    hf.webhooks.remove(it.id, **author)
    render.echo(f"removed endpoint {it.id}")


@group.command(epilog="Example: holdfast webhooks key")
def key() -> None:
    """Generate a key for HOLDFAST_SECRET_KEYS, which encrypts secrets in the database."""
    from holdfast.effects.seal import new_key

    typer.echo(new_key())


def _delivery(hf: Holdfast, id_: str) -> DeliveryInfo:
    found = hf.webhooks.delivery(id_)
    if found is None:
        raise HoldfastError(f"there is no delivery {id_}; history may have been pruned")
    return found


def _without_secret(it: Endpoint) -> dict[str, Any]:
    fields = asdict(it)
    fields.pop("secret")
    return fields


def _show_secret(secret: str) -> None:
    """Print the secret alone on the last line of standard output, for scripts."""
    render.note("its secret, which cannot be shown again:")
    render.echo(secret)


def _typed(wanted: bool) -> str | None:
    return sys.stdin.readline().rstrip("\r\n") if wanted else None
