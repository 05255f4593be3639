"""`holdfast dead blocks` and `dead unblock`: keys that handlers found blocked, until a person acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.options import AsJson, Yes
from holdfast.errors import UsageError
from holdfast.model.job import BlockInfo

if TYPE_CHECKING:
    from holdfast.client import Holdfast


def list_blocks(hf: Holdfast, as_json: AsJson = False) -> None:
    """List blocked keys: raise Dead(..., block=KEY) in a handler adds a key (a domain, an account)."""
    columns = "key, ~reason, #count, first seen, last seen, last job"
    render.show_list(hf.dead.blocks(), columns, _more, as_json=as_json, head=2, empty="no key is blocked")


def _more(block: BlockInfo) -> dict[str, Any]:
    return {"reason": " ".join((block.reason or "").split())}


def unblock(
    hf: Holdfast,
    key: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys as listed, or --all.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All keys on the list.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove keys from the list of blocks; a job that finds one blocked again adds it back."""
    if every == bool(key):
        raise UsageError("give either keys, as listed by `holdfast dead blocks`, or --all")
    keys = [each.key for each in hf.dead.blocks()] if every else list(dict.fromkeys(key or []))
    if every and keys:
        render.confirm(f"unblock {render.plural(len(keys), 'key')}?", yes)
    cleared = hf.dead.clear_blocks(*keys)
    gone = set(cleared)
    _report([each for each in keys if each in gone], [each for each in keys if each not in gone], as_json)


def _report(gone: list[str], left: list[str], as_json: bool) -> None:
    result = {"unblocked": len(gone), "left": len(left), "keys": gone, "left_keys": left}
    render.show_result(result, f"unblocked {render.plural(len(gone), 'key')}", as_json=as_json)
    if left:
        render.note(f"not on the list: {', '.join(left[:5])}{' ...' if len(left) > 5 else ''}", "yellow")
        raise typer.Exit(1)
