"""`holdfast import-beat`: read the timetable of a Celery application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import render
from holdfast.cli.beat_code import Source, check_writable, program, source
from holdfast.cli.load import CELERY, load_app, load_object, redirect, wrong_type
from holdfast.cli.options import Dsn, Schema
from holdfast.errors import ConfigurationError, HoldfastError, UsageError, hint
from holdfast.model.beat import Entry, NotConvertible, read

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.client.task import Task
    from holdfast.model.job import NewJob

Celery = Annotated[
    str, typer.Argument(metavar="MODULE:ATTRIBUTE", help="The Celery application, as in proj.celery:app.")
]
Tasks = Annotated[
    str | None,
    typer.Option(metavar="MODULE:ATTRIBUTE", help="Import the tasks of this Holdfast application, as in jobs:hf."),
]
Register = Annotated[
    str | None,
    typer.Option(metavar="MODULE:ATTRIBUTE", help="Register the schedules for tasks of this Holdfast application."),
]


def import_beat(
    celery: Celery, *, tasks: Tasks = None, register: Register = None, dsn: Dsn = None, schema: Schema = None
) -> None:
    """Print the beat schedule of a Celery application as Python code, or register it; exit 1 if something is left out.

    Reads app.conf.beat_schedule, including add_periodic_task():
    crontabs and intervals, with args, kwargs, queue and expires.
    An entry that cannot be converted, and any other option, is left out.
    Celery has to be installed where this runs; nothing is sent to its
    broker.
    """
    if tasks is not None and register is not None:
        raise UsageError("--tasks is for printing; --register names the application already")
    found, left_out = entries(load_celery(celery))
    if register is None:
        _print(celery, tasks, found, left_out)
    else:
        hf = load_app(register)
        redirect(hf, dsn=dsn, schema=schema)
        _register(hf, register, found, left_out)
    if left_out or any(each.dropped for each in found):
        raise typer.Exit(1)


def load_celery(target: str) -> Any:
    """Return a Celery application with all its periodic tasks."""
    module, app = load_object(target, CELERY)
    if not hasattr(getattr(app, "conf", None), "beat_schedule"):
        raise wrong_type(target, module, app, CELERY)
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


def _print(celery: str, tasks: str | None, found: list[Entry], left_out: list[str]) -> None:
    """Print the schedules as a program; move those that cannot be written from `found` to `left_out`."""
    _keep(found, left_out, check_writable)
    command = f"holdfast import-beat {celery}"
    sources: dict[str, Source] | None = None
    if tasks is not None:
        hf, command = load_app(tasks), f"{command} --tasks {tasks}"
        _keep(found, left_out, lambda each: _job(hf, each))
        module = tasks.partition(":")[0]
        sources = {each.task: source(_task(hf, each.task), module) for each in found}
    for line in program(command, found, sources, left_out):
        render.echo(line)


def _keep(found: list[Entry], left_out: list[str], check: Callable[[Entry], object]) -> None:
    """Move the entries that a check refuses to what is left out, with the reason."""
    for each in [*found]:
        try:
            check(each)
        except HoldfastError as error:
            left_out.append(f"{each.name}: {error}")
            found.remove(each)


def _register(hf: Holdfast, target: str, found: list[Entry], left_out: list[str]) -> None:
    """Register the schedules of known tasks that the code does not declare, and report; move what cannot be
    registered from `found` to `left_out`."""
    before = dict(hf.registry.schedules)
    declared = [each for each in found if each.name in before]
    differing = [each for each in declared if not _is_declared(hf, each)]
    found[:] = [each for each in found if each.name not in before]
    _keep(found, left_out, lambda each: _schedule(hf, each))
    if added := [made for name, made in hf.registry.schedules.items() if name not in before]:
        with hf:
            hf.database.sync_pool.run(hf.database.calls.schedules.register(added))
    _report(target, found, declared)
    for each in differing:
        render.note(f"{each.name}: its line in {target} differs, and stays", "yellow")
    for each in found:
        for text in each.dropped:
            render.note(f"{each.name}: {text}", "yellow")
    for text in left_out:
        render.note(f"left out: {text}", "yellow")


def _schedule(hf: Holdfast, entry: Entry) -> None:
    _task(hf, entry.task).using(**entry.options).schedule(entry.name, entry.cron, *entry.args, **entry.kwargs)


def _job(hf: Holdfast, entry: Entry) -> NewJob:
    """Return the job of an entry, or raise HoldfastError if its task is unknown or its arguments do not fit."""
    return _task(hf, entry.task).using(**entry.options).new_job(entry.args, entry.kwargs)


def _is_declared(hf: Holdfast, entry: Entry) -> bool:
    """Return whether the schedule of this name in the code has the same slots and makes the same jobs."""
    code = hf.registry.schedules[entry.name]
    try:
        job = _job(hf, entry)
    except HoldfastError:
        return False
    same = all(getattr(job, each) == getattr(code.job, each) for each in ("task", "payload", "queue", "deadline"))
    return same and (entry.cron.text, entry.cron.zone) == (code.cron.text, code.cron.zone)


def _task(hf: Holdfast, name: str) -> Task[Any, Any]:
    """Return the task of that name, or the only one whose name ends like it."""
    tasks = hf.registry.tasks
    alike = [each for each in tasks if each.rpartition(".")[2] == name.rpartition(".")[2]]
    if name in tasks or len(alike) == 1:
        return tasks[name if name in tasks else alike[0]]
    raise ConfigurationError(f"no task {name!r} is registered{hint(name, tasks)}")


def _report(target: str, registered: Sequence[Entry], declared: Sequence[Entry]) -> None:
    schedules = render.plural(len(declared), "schedule")
    already = f"{'is' if len(declared) == 1 else 'are'} already in {target}"
    if declared and not registered:
        render.echo(f"{schedules} {already}; nothing to register")
    else:
        rest = f"; {len(declared)} {already}" if declared else ""
        render.echo(f"registered {render.plural(len(registered), 'schedule')}{rest}; see: holdfast schedules")
