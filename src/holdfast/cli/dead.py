"""`holdfast dead`: list, show, retry and discard failed and dead jobs, which stay until a person acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import act, blocks, render
from holdfast.cli.commands import Commands
from holdfast.cli.jobs import find_job, show_job, show_jobs
from holdfast.cli.options import AsJson, DeadWhere, Id, Limit
from holdfast.errors import HoldfastError
from holdfast.model.job import MOST_COUNTED

if TYPE_CHECKING:
    from holdfast.client import Holdfast

group = Commands(invoke_without_command=True)


@group.listing(epilog="Example: holdfast dead --task app.send --error TimeoutError")
def list_dead(hf: Holdfast, where: DeadWhere, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List failed and dead jobs; show, retry and discard them, and list blocked keys."""
    found = hf.dead.list(**where, limit=limit)
    most = max(limit, MOST_COUNTED)
    total = hf.dead.count(**where, most=most + 1)
    show_jobs(hf, found, "finished=finished_at", where, as_json=as_json, empty="no failed or dead jobs match")
    if total > len(found) and not as_json:
        render.note(f"these are the newest {len(found)} of {render.up_to(total, most)}; --limit shows more")


@group.command(epilog="Example: holdfast dead show 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
def show(hf: Holdfast, id_: Id, as_json: AsJson = False) -> None:
    """Show one failed or dead job and its error in full."""
    job = find_job(hf, id_)
    if str(job.status) not in ("failed", "dead"):
        raise HoldfastError(f"job {job.id} is {job.status}, neither failed nor dead; see: holdfast jobs show {job.id}")
    show_job(hf, job, as_json)


group.command(epilog="Example: holdfast dead retry --task app.send --error TimeoutError --reason 'back'")(act.retry)
group.command(epilog="Example: holdfast dead discard --all --error captcha")(act.discard)
group.command("blocks", epilog="Example: holdfast dead blocks --json")(blocks.list_blocks)
group.command("unblock", epilog="Example: holdfast dead unblock shop.example forum.example")(blocks.unblock)
