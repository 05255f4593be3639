"""`holdfast import-beat`: read the timetable of a Celery application."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.load import load_app, load_object, redirect
from holdfast.cli.options import Dsn, Schema
from holdfast.errors import ConfigurationError, HoldfastError, hint
from holdfast.model.beat import Entry, NotConvertible, read

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.task import Task

Celery = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The Celery application, as in proj.celery:app.")
]
Register = Annotated[
    str | None,
    typer.Option(metavar="MODULE:ATTRIBUTE", help="Register the schedules for tasks of this Holdfast application."),
]


def import_beat(celery: Celery, *, register: Register = None, dsn: Dsn = None, schema: Schema = None) -> None:
    """Print the beat schedule of a Celery application as Python code, or register it; exit 1 if something is left out.

    Reads app.conf.beat_schedule, including add_periodic_task():
    crontabs and intervals, with args, kwargs, queue and expires.
    Celery has to be installed where this runs; nothing is sent to its
    broker.
    """
    app = load_celery(celery)
    found, left_out = entries(app)
    if register is None:
        for line in code(celery, found, left_out):
            render.echo(line)
    else:
        hf = load_app(register)
        redirect(hf, dsn=dsn, schema=schema)
        left_out += _register(hf, found)
        _report(len(found), left_out)
    if left_out:
        raise typer.Exit(1)


def load_celery(target: str) -> Any:
    """Return a Celery application with all its periodic tasks."""
    _, app = load_object(target)
    if not hasattr(getattr(app, "conf", None), "beat_schedule"):
        raise ConfigurationError(f"{target} is of type {type(app).__name__}, not a Celery application")
    try:
        app.loader.init_worker()  # as `celery beat` does: imports the modules that add periodic tasks
        app.finalize()
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"loading the tasks of {target} failed: {what}; start it with celery first") from error
    return app


def entries(app: Any) -> tuple[list[Entry], list[str]]:
    """Return the entries of a Celery application, and what cannot be converted, with the reason."""
    found, left_out = [], []
    for name, given in app.conf.beat_schedule.items():
        try:
            found.extend(read(name, given, str(app.timezone)))
        except (NotConvertible, ConfigurationError) as error:
            left_out.append(f"{name}: {error}")
    return found, left_out


def code(target: str, found: Sequence[Entry], left_out: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a program that declares the schedules."""
    names = _names(found)
    yield f"# Made by `holdfast import-beat {target}`. Put each line beside its task."
    yield "# The imports are guessed from the names of the tasks: point them at your Holdfast tasks."
    if any(each.cron.zone != "UTC" for each in found):
        yield from ("from holdfast import Cron", "")
    yield from (*_imports(names), "")
    for each in found:
        yield from (f"# {note}" for note in each.notes)
        yield _line(each, names[each.task])
    yield from (f"# left out: {each}" for each in left_out)


def _names(found: Iterable[Entry]) -> dict[str, str]:
    """Return the name in the code of each task: its last part, or all of them where two share that."""
    tasks = {each.task for each in found}
    shared = Counter(task.rpartition(".")[2] for task in tasks)
    return {
        task: _identifier(task if shared[task.rpartition(".")[2]] > 1 else task.rpartition(".")[2]) for task in tasks
    }


def _identifier(text: str) -> str:
    kept = "".join(each if each.isalnum() else "_" for each in text)
    return kept if kept.isidentifier() else f"task_{kept}"


def _imports(names: dict[str, str]) -> Iterator[str]:
    for task, name in sorted(names.items()):
        module, _, function = task.rpartition(".")
        if module and function.isidentifier():
            yield f"from {module} import {function}" + ("" if function == name else f" as {name}")
        else:
            yield f"# {name}: the task {task!r}, wherever it is"


def _line(entry: Entry, name: str) -> str:
    using = f".using({_keywords(entry.options)})" if entry.options else ""
    cron = entry.cron
    when = repr(cron.text) if cron.zone == "UTC" else f"Cron({cron.text!r}, zone={cron.zone!r})"
    given = [repr(entry.name), when, *map(repr, entry.args), *([_keywords(entry.kwargs)] if entry.kwargs else [])]
    return f"{name}{using}.schedule({', '.join(given)})"


def _keywords(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _register(hf: Holdfast, found: list[Entry]) -> list[str]:
    """Register the schedules of known tasks; return what is left out, with the reason."""
    before, left_out = set(hf.registry.schedules), []
    for each in [*found]:
        try:
            _task(hf, each.task).using(**each.options).schedule(each.name, each.cron, *each.args, **each.kwargs)
        except HoldfastError as error:
            left_out.append(f"{each.name}: {error}")
            found.remove(each)
    added = [made for name, made in hf.registry.schedules.items() if name not in before]
    with hf:
        hf.database.sync_pool.run(hf.database.calls.schedules.register(added))
    return left_out


def _task(hf: Holdfast, name: str) -> Task[Any, Any]:
    """Return the task of that name, or the only one whose name ends like it."""
    tasks = hf.registry.tasks
    alike = [each for each in tasks if each.rpartition(".")[2] == name.rpartition(".")[2]]
    if name in tasks or len(alike) == 1:
        return tasks[name if name in tasks else alike[0]]
    raise ConfigurationError(f"no task {name!r} is registered{hint(name, tasks)}")


def _report(registered: int, left_out: Iterable[str]) -> None:
    render.echo(f"registered {render.plural(registered, 'schedule')}; see: holdfast schedules")
    for text in left_out:
        render.note(f"left out: {text}", "yellow")
