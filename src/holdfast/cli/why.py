"""`holdfast why`: says in one sentence why a job does not run, and then everything that is in its way."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.database import Database, job_id
from holdfast.cli.options import AsJson, Dsn, Schema
from holdfast.model.flow import Reason

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*[+-]\d\d:\d\d$")


def why(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    as_json: AsJson = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Say why a job does not run: one sentence, then what is in its way, the hardest first; exit 1 when it is unknown.

    A pause and who made it, a limit that is full and which jobs hold it,
    a rate, an open breaker, no worker, its time that has not come,
    jobs before it; or where it runs, or how it ended.
    """
    with Database(dsn, schema) as db:
        told = db.run(db.flow.why(job_id(id_)))
    if as_json:
        render.emit_json(told)
    else:
        sentence = f"job {told.id}: {told.sentence}" if told.status is None else f"{told.status}: {told.sentence}"
        render.show_wrapped(Text(render.printable(sentence)), first="", then="")
        for place, reason in enumerate(told.reasons, 1):
            _show(f"{place}. {reason.kind}", _short(reason, told.id), alone=len(told.reasons) == 1)
        for note in told.notes:
            _show(f"   {note.kind}", note, alone=False)
    if told.status is None:
        raise typer.Exit(1)


def _show(name: str, reason: Reason, *, alone: bool) -> None:
    """A reason and its facts; the sentence has said it already when it is the only one."""
    render.say("")
    if not alone:
        whole = Text.assemble((name, "bold"), f"  {render.printable(reason.text)}")
        render.show_wrapped(whole, first="", then="   ")
    for fact, value in reason.facts.items():
        for line in _lines(value):
            label = Text(f"   {fact.replace('_', ' '):<16} ", "bright_black")
            render.show_wrapped(Text(line), first=label, then=" " * len(label))


def _short(reason: Reason, id_: str) -> Reason:
    """Of what a webhook's receiver answered only the status: the rest is long, and has a command of its own."""
    error: dict[str, Any] = reason.facts.get("error") or {}
    match error.get("details"):
        case {"response": {"http_status": status}}:
            rest = {name: value for name, value in error.items() if name != "details"}
            facts = {"error": rest, "http_status": status, "answer": f"see: holdfast webhooks delivery {id_}"}
            return replace(reason, facts={**reason.facts, **facts})
    return reason


def _lines(value: Any) -> list[str]:
    """A fact: one line, or one for each of several things."""
    return [_words(each) for each in value] if isinstance(value, list) else [_words(value)]


def _named(name: str, words: str) -> str:
    """A worker's id says what it is."""
    return words if words.startswith(f"{name}-") else f"{name.replace('_', ' ')} {words}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(_named(name, _words(each)) for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return render.number(round(value, 3))
    if _MOMENT.match(str(value)):
        return render.when(datetime.fromisoformat(value))
    return render.printable(str(value))
