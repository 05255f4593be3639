"""`holdfast signal`: give a signal its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.client import Holdfast


def signal(
    hf: Holdfast,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.")],
    value: Annotated[str, typer.Argument(metavar="JSON", help="Its value.")] = "null",
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="For the jobs of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give a signal its value: jobs that wait for it continue."""
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"the value must be JSON, got {value[:60]!r}: {error}") from None
    first = hf.signal(name, decoded, tenant=tenant)
    text = "sent" if first else "it has a value already, which stays"
    render.show_result({"name": name, "existing": not first}, text, as_json=as_json)
