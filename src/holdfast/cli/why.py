"""`holdfast why`: explain in one sentence why a job does not run, and list everything that holds it up."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.options import AsJson, Id, checked_id
from holdfast.model.why import Reason, remedies

if TYPE_CHECKING:
    from holdfast.client import Holdfast

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*[+-]\d\d:\d\d$")


def why(hf: Holdfast, id_: Id, as_json: AsJson = False) -> None:
    """Explain why a job does not run: one sentence, then all reasons, the hardest first; exit 1 when it is unknown.

    A pause and who made it, a full limit and the jobs that hold it,
    a rate, an open breaker, no worker, a later start time, jobs before
    it; or where it runs, or how it ended. Each with the commands that
    remove it, where there are any.
    """
    found = hf.jobs.why(checked_id(id_))
    if as_json:
        render.emit_json(found)
    else:
        sentence = f"job {found.id}: {found.sentence}" if found.status is None else f"{found.status}: {found.sentence}"
        render.show_wrapped(Text(render.printable(sentence)), first="", then="")
        for place, reason in enumerate(found.reasons, 1):
            _show(f"{place}. {reason.kind}", _short(reason, found.id), alone=len(found.reasons) == 1)
            for command in remedies(reason, found.id):
                render.show_wrapped(Text(render.printable(command)), first="   -> ", then=" " * 6)
        for note in found.notes:
            _show(f"   {note.kind}", note, alone=False)
    if found.status is None:
        raise typer.Exit(1)


def _show(name: str, reason: Reason, *, alone: bool) -> None:
    """Print a reason and its facts. The sentence above already contains the text of an only reason."""
    render.echo("")
    if not alone:
        whole = Text.assemble((name, "bold"), f"  {render.printable(reason.text)}")
        render.show_wrapped(whole, first="", then="   ")
    for fact, value in reason.facts.items():
        if value is False:  # such as "more": the count is the whole
            continue
        for line in _lines(value):
            label = Text(f"   {fact.replace('_', ' '):<16} ", "bright_black")
            render.show_wrapped(Text(line), first=label, then=" " * len(label))


def _short(reason: Reason, id_: str) -> Reason:
    """Reduce a webhook's response to its status; `webhooks delivery` shows all of it."""
    error: dict[str, Any] = reason.facts.get("error") or {}
    match error.get("details"):
        case {"response": {"http_status": status}}:
            rest = {name: value for name, value in error.items() if name != "details"}
            facts = {"error": rest, "http_status": status, "response": f"see: holdfast webhooks delivery {id_}"}
            return replace(reason, facts={**reason.facts, **facts})
    return reason


def _lines(value: Any) -> list[str]:
    """Return the lines of a fact: one for each item of a list."""
    return [_words(each) for each in value] if isinstance(value, list) else [_words(value)]


def _named(name: str, words: str) -> str:
    """Prefix a value with its name, unless it starts with it, as a worker's id does."""
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
