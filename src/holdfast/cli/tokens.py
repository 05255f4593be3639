"""`holdfast tokens`: list, create and revoke tokens of the service."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.commands import Commands
from holdfast.cli.options import AsJson, Author, seconds
from holdfast.errors import UsageError
from holdfast.model.token import SCOPES, TokenInfo

if TYPE_CHECKING:
    from holdfast.client import Holdfast

group = Commands(invoke_without_command=True)
TenantOnly = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only those of this tenant.")]


@group.listing(
    help="List tokens of the service; create and revoke them.", epilog="Example: holdfast tokens --tenant acme"
)
@group.command("list", epilog="Example: holdfast tokens list --json")
def list_tokens(hf: Holdfast, tenant: TenantOnly = None, as_json: AsJson = False) -> None:
    """List tokens: their first characters, state, tenant, scopes, and when they were last used."""
    columns = (
        "id, token, state, name, ~tenant, ~scopes, created=created_at, last used=last_used_at, expires=expires_at, "
        "revoked=revoked_at, best priority=priority, rate"
    )
    found = hf.tokens.list(tenant=tenant)
    render.show_list(found, columns, _more, as_json=as_json, head=4, empty="there are no tokens")


def _more(it: TokenInfo) -> dict[str, Any]:
    return {"token": f"{it.shown}...", "tenant": "(all)" if it.tenant is None else it.tenant}


@group.command(epilog="Example: holdfast tokens create 'web tier' --tenant acme --scopes jobs:read,jobs:write")
def create(
    hf: Holdfast,
    name: Annotated[str, typer.Argument(metavar="NAME", help="For people: who uses it.")],
    *,
    scopes: Annotated[str, typer.Option(metavar="NAMES", help=f"Separated by commas: {', '.join(SCOPES)}.")],
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="The tenant whose jobs it may use.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="For the jobs of all tenants.")] = False,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid, as in 90d. Default: forever.")
    ] = None,
    best_priority: Annotated[
        int, typer.Option(min=0, max=3, metavar="N", help="The best priority its jobs may have. Default: 0, any.")
    ] = 0,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Requests a second that each service process accepts. Default: any."),
    ] = None,
    author: Author,
    as_json: AsJson = False,
) -> None:
    """Create a token; it is shown once, now."""
    if all_tenants == (tenant is not None):
        given = ", got both" if all_tenants else ""
        raise UsageError(f"give either --tenant NAME or --all-tenants{given}")
    token, made = hf.tokens.create(
        name, tenant=tenant, scopes=[each.strip() for each in scopes.split(",") if each.strip()],
        lifetime=None if expires is None else seconds(expires, "--expires"), priority=best_priority, rate=rate,
        **author,
    )  # fmt: skip
    if as_json:
        render.emit_json({**asdict(made), "token": token})
    else:
        render.note(f"created token {made.id}; it cannot be shown again:")
        typer.echo(token)


@group.command(epilog="Example: holdfast tokens revoke 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def revoke(
    hf: Holdfast, id_: Annotated[str, typer.Argument(metavar="ID", help="The token's id.")], author: Author
) -> None:
    """Revoke a token; running services stop accepting it within seconds."""
    was = hf.tokens.revoke(id_, **author)
    render.echo(f"revoked token {id_}" if was else f"token {id_} was already invalid")
