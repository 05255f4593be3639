"""The root command: registers all commands, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from holdfast.cli.commands import Commands, Group, LazyCommands
from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError, UsageError
from holdfast.settings import misspelt

# In the order in which users need them: the place of each, and an example for those that are no group.
COMMANDS = LazyCommands(
    {
        "demo": ("demo:demo", "holdfast demo --jobs 2000"),
        "dev": ("dev:dev", "holdfast dev app:hf"),
        "worker": ("worker:worker", "holdfast worker app:hf --queues default,mail --concurrency 20"),
        "workers": ("workers:group", None),
        "tick": ("tick:tick", "holdfast tick app:hf --max-jobs 100 --json"),
        "serve": ("serve:serve", "holdfast serve app:hf --port 8000"),
        "migrate": ("migrate:migrate", "holdfast migrate --check"),
        "jobs": ("jobs:group", None),
        "why": ("why:why", "holdfast why 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"),
        "batches": ("batches:group", None),
        "dead": ("dead:group", None),
        "errors": ("errors:group", None),
        "actions": ("actions:group", None),
        "audit": ("actions:audit", "holdfast audit --by ann@laptop --kind pause"),
        "outbox": ("outbox:group", None),
        "webhooks": ("webhooks:group", None),
        "schedules": ("schedules:group", None),
        "import-beat": ("beat:import_beat", "holdfast import-beat proj.celery:app >> schedules.py"),
        "limits": ("limits:group", None),
        "pause": ("pauses:pause", "holdfast pause queue:mail --for 10m --reason 'provider down'"),
        "resume": ("pauses:resume", "holdfast resume queue:mail"),
        "signal": ("signal:signal", 'holdfast signal approved:42 \'{"by": "ann"}\''),
        "drain": ("drain:drain", "holdfast drain mail --timeout 10m && deploy"),
        "tokens": ("tokens:group", None),
        "top": ("top:top", "holdfast top"),
        "usage": ("usage:usage", "holdfast usage --by tenant,day --since 30d"),
        "doctor": ("doctor:doctor", "holdfast doctor --json"),
        "after-restore": ("restore:after_restore", "holdfast after-restore --plan"),
        "bench": ("bench:bench", "holdfast bench -w drain --scale 0.5 --json"),
    }
)


class Root(Group):
    """The group of all commands, which handles their errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = COMMANDS

    def invoke(self, ctx: Any) -> Any:
        """Run a command; turn a HoldfastError into a line on standard error and an exit code."""
        _warn_of_misspelt()
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            if debug_wanted():
                raise
            from holdfast.cli import render

            render.note(f"error: {error}", "red")
            raise typer.Exit(exit_code(error)) from None


def _warn_of_misspelt() -> None:
    if "--stop-with-stdin" in sys.argv:  # the parent process has warned already
        return
    for name, nearest in misspelt().items():
        from holdfast.cli import render

        render.note(f"warning: unknown setting {name}; did you mean {nearest}?", "yellow")


def exit_code(error: HoldfastError) -> int:
    """Return 2 for wrong usage or configuration, 3 for an unreachable database, 1 otherwise."""
    if isinstance(error, ConfigurationError | UsageError):
        return 2
    return 3 if isinstance(error, DatabaseUnavailable) else 1


def debug_wanted() -> bool:
    """Return whether HOLDFAST_DEBUG asks for tracebacks."""
    return os.environ.get("HOLDFAST_DEBUG", "") not in ("", "0")


def _print_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


app = Commands(
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: holdfast demo",
)


@app.callback(epilog="Example: holdfast demo")
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Holdfast: a PostgreSQL-backed job system for Python."""
