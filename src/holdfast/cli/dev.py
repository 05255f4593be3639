"""`holdfast dev`: start an embedded PostgreSQL, migrate it, run a worker that reloads the code, and the dashboard."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import __version__
from holdfast.cli import dashboard, render
from holdfast.cli.address import shareable
from holdfast.cli.load import check_target
from holdfast.cli.options import LogFormat, LogLevel, Schema, Target
from holdfast.cli.worker import Concurrency, child_command, configure_logs
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.store.wire import connect

if TYPE_CHECKING:
    from holdfast.worker.supervise import Supervisor

EMBEDDED = "embedded:./.holdfast"
GRACE = 5.0
DEBOUNCE_MS = 300


def dev(
    target: Target,
    *,
    queues: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Queues to serve. Default: those of all tasks and schedules.")
    ] = None,
    concurrency: Concurrency = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The dashboard's port, or a free one if it is taken.")
    ] = 8000,
    reload: Annotated[bool, typer.Option(help="Restart the worker when a Python file changes.")] = True,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    dsn: Annotated[
        str | None,
        typer.Option(metavar="DSN", help=f"Default: HOLDFAST_DSN, else {EMBEDDED}, which is started if necessary."),
    ] = None,
    schema: Schema = None,
) -> None:
    """Start a database, migrate it, and run a worker that restarts when the code changes.

    The dashboard needs no sign-in here, and can be opened from this machine only.
    """
    from holdfast.worker.supervise import Supervisor

    check_target(target)  # no reload could fix a malformed target
    dsn = dsn or (None if Settings.load().dsn else EMBEDDED)
    settings = Settings.load(dsn=dsn, schema=schema, log_format=log_format, log_level=log_level)
    configure_logs(settings)
    version = migrate(settings).version
    reload = reload and _can_reload()
    listening = dashboard.listen(port) if settings.dashboard else None
    _show_banner(settings, version, reload, None if listening is None else dashboard.address(listening))
    # The level debug shows each job.
    given = {
        "queues": queues,
        "concurrency": concurrency,
        "grace": GRACE,
        "log_format": log_format,
        "log_level": log_level or "debug",
        "dsn": dsn,
        "schema": schema,
    }
    command = child_command(target, given, *([] if queues else ["--all-queues"]))
    raise typer.Exit(asyncio.run(_serve(settings, listening, target, Supervisor(command, 1, reload=reload), reload)))


async def _serve(
    settings: Settings, listening: socket.socket | None, target: str, supervisor: Supervisor, reload: bool
) -> int:
    async with dashboard.dashboard(settings, listening, target):
        return await _run(supervisor, reload)


def _can_reload() -> bool:
    if importlib.util.find_spec("watchfiles") is not None:
        return True
    render.note("reload is off: watchfiles is not installed; run: pip install 'holdfast-jobs[reload]'", "yellow")
    return False


def _show_banner(settings: Settings, version: int, reload: bool, address: str | None) -> None:
    server = connect.server_dsn(settings)
    shown = shareable(settings.dsn)
    reloading = f"on, for Python files below {os.getcwd()}" if reload else "off"
    render.echo(f"Holdfast {__version__}, for development", "bold green")
    render.show_fields(
        {
            "dashboard": address,
            "database": shown,
            "url": f"{server} (for other libraries and psql, while this runs)" if server != settings.dsn else None,
            "psql": f"psql {shlex.quote(connect.hide_password(server))}",
            "elsewhere": f"export HOLDFAST_DSN={shlex.quote(shown)}",
            "schema": f"{settings.schema}, version {version}",
            "reload": reloading,
            "stop": "Ctrl-C",
        }
    )


async def _run(supervisor: Supervisor, reload: bool) -> int:
    watching = [asyncio.create_task(_watch(*each, supervisor)) for each in watched(Path.cwd())] if reload else []
    try:
        return await supervisor.run()
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


def watched(folder: Path) -> Iterable[tuple[list[Path], bool]]:
    """Yield paths to watch, and whether recursively. Hidden folders, where the database writes, are left out."""
    yield [folder], False
    below = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))]
    below = [path for path in below if not (path / "pyvenv.cfg").exists()]
    if below:
        yield below, True


async def _watch(paths: list[Path], recursive: bool, supervisor: Supervisor) -> None:
    from watchfiles import PythonFilter, awatch

    changed = awatch(
        *paths, watch_filter=PythonFilter(), recursive=recursive, debounce=DEBOUNCE_MS, ignore_permission_denied=True
    )
    async for changes in changed:
        names = sorted({Path(path).name for _, path in changes})
        render.note(f"changed: {', '.join(names)}; restarting the worker", "cyan")
        supervisor.reload()
