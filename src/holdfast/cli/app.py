"""The root command: registers all commands, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from holdfast.cli import (
    actions,
    batches,
    beat,
    dead,
    demo,
    dev,
    doctor,
    drain,
    errors,
    jobs,
    limits,
    migrate,
    outbox,
    pauses,
    restore,
    schedules,
    serve,
    signal,
    tick,
    tokens,
    top,
    usage,
    webhooks,
    why,
    worker,
    workers,
)
from holdfast.cli.commands import Commands, Group
from holdfast.cli.options import Dsn, Schema
from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError, UsageError
from holdfast.settings import misspelt

ORDER = (
    "demo dev worker workers tick serve migrate jobs why batches dead errors actions audit outbox webhooks schedules "
    "import-beat limits pause resume signal drain tokens top usage doctor after-restore bench"
)


class Root(Group):
    """The group of all commands, which handles their errors."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order in which users need them."""
        return [name for name in ORDER.split() if name in self.commands]

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


@app.command(epilog="Example: holdfast bench -w drain --scale 0.5 --json")
def bench(
    workload: Annotated[
        list[str] | None, typer.Option("--workload", "-w", metavar="NAME", help="Only this workload; may be repeated.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, metavar="FACTOR", help="Multiplies the number of jobs.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Measure throughput and latency against the limit of bare SQL."""
    from holdfast import bench as benchmark
    from holdfast.settings import Settings

    settings = Settings.load(dsn=dsn, schema=schema)
    raise typer.Exit(benchmark.run(settings, workloads=workload or None, scale=scale, json=as_json))


app.command(epilog="Example: holdfast demo --jobs 2000")(demo.demo)
app.command(epilog="Example: holdfast dev app:hf")(dev.dev)
app.command(epilog="Example: holdfast worker app:hf --queues default,mail --concurrency 20")(worker.worker)
app.add_typer(workers.group, name="workers")
app.command(epilog="Example: holdfast tick app:hf --max-jobs 100 --json")(tick.tick)
app.command(epilog="Example: holdfast serve app:hf --port 8000")(serve.serve)
app.command(epilog="Example: holdfast migrate --check")(migrate.migrate)
app.add_typer(jobs.group, name="jobs")
app.add_typer(batches.group, name="batches")
app.add_typer(dead.group, name="dead")
app.add_typer(errors.group, name="errors")
app.add_typer(actions.group, name="actions")
app.command(epilog="Example: holdfast audit --by ann@laptop --kind pause")(actions.audit)
app.add_typer(outbox.group, name="outbox")
app.add_typer(webhooks.group, name="webhooks")
app.add_typer(schedules.group, name="schedules")
app.command("import-beat", epilog="Example: holdfast import-beat proj.celery:app >> schedules.py")(beat.import_beat)
app.command(epilog="Example: holdfast why 018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")(why.why)
app.add_typer(limits.group, name="limits")
app.command(epilog="Example: holdfast pause queue:mail --for 10m --reason 'provider down'")(pauses.pause)
app.command(epilog="Example: holdfast resume queue:mail")(pauses.resume)
app.command(epilog='Example: holdfast signal approved:42 \'{"by": "ann"}\'')(signal.signal)
app.command(epilog="Example: holdfast drain mail --timeout 10m && deploy")(drain.drain)
app.add_typer(tokens.group, name="tokens")
app.command(epilog="Example: holdfast top")(top.top)
app.command(epilog="Example: holdfast usage --by tenant,day --since 30d")(usage.usage)
app.command(epilog="Example: holdfast doctor --json")(doctor.doctor)
app.command(epilog="Example: holdfast after-restore --plan")(restore.after_restore)
