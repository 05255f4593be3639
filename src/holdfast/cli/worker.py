"""`holdfast worker`: run an application's jobs in this process, or in several supervised ones."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.address import same_database, shareable
from holdfast.cli.exit import remaining_threads
from holdfast.cli.options import Common, Target
from holdfast.errors import HoldfastError, nearest
from holdfast.model.webhook import QUEUE, TASK
from holdfast.settings import Settings
from holdfast.telemetry import logs

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.worker.supervise import Lifeline

T = TypeVar("T")
log = logs.get("cli")
PATIENCE = 2.0  # seconds for reading the known queues from the database

Queues = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Queues to serve, separated by commas. Default: default, channels', webhooks."),
]
AllQueues = Annotated[
    bool,
    typer.Option(
        "--all-queues", help="Serve every queue of the application's tasks and schedules, and that of webhooks."
    ),
]
Concurrency = Annotated[int | None, typer.Option(metavar="N", help="Jobs to run at once in each process.")]
Grace = Annotated[float | None, typer.Option(metavar="SECONDS", help="How long running jobs may take to finish.")]


def worker(
    target: Target,
    *,
    queues: Queues = None,
    all_queues: AllQueues = False,
    concurrency: Concurrency = None,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep this many processes running; each is a worker.")
    ] = None,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a claim holds without renewal.")
    ] = None,
    renew: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time between renewals.")] = None,
    poll: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time between polls of an empty queue.")] = None,
    grace: Grace = None,
    common: Common,
    stop_with_stdin: Annotated[
        bool, typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True)
    ] = False,
) -> None:
    """Run an application's jobs until stopped; a second Ctrl-C or SIGTERM stops at once.

    Options override the application's settings and the environment.
    """
    given = {"queues": queues, "concurrency": concurrency, "lease": lease, "renew": renew, "poll": poll, "grace": grace}
    given |= common
    if processes is not None:
        raise typer.Exit(_supervise(target, processes, given, all_queues))
    supervisor = None
    if stop_with_stdin:
        from holdfast.worker.supervise import stop_at_end_of_input

        supervisor = stop_at_end_of_input()
    _work(target, given, all_queues, supervisor)


def child_command(target: str, given: Mapping[str, object], *flags: str) -> list[str]:
    """Return the command of a worker process that ends with this one. Options that are None are left out."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]
    return [sys.executable, "-m", "holdfast.cli", "worker", target, *options, *flags, "--stop-with-stdin"]


def configure_logs(settings: Settings) -> None:
    """Configure logging to standard error from the settings."""
    logs.configure(settings.log_format, settings.log_level)


def _supervise(target: str, processes: int, given: Mapping[str, object], all_queues: bool) -> int:
    from holdfast.worker.supervise import Supervisor

    # The worker processes check the remaining options, together with the application's settings.
    configure_logs(Settings.load(log_format=given["log_format"], log_level=given["log_level"]))
    command = child_command(target, given, *(["--all-queues"] if all_queues else []))
    return asyncio.run(Supervisor(command, processes).run())


def _work(target: str, given: Mapping[str, object], all_queues: bool, supervisor: Lifeline | None) -> None:
    from holdfast.worker import Worker, keep_what_is_loaded

    hf = prepared(target, given, all_queues)
    keep_what_is_loaded()
    run(Worker(hf).run(handle_signals=True, supervisor=supervisor))


def prepared(target: str, given: Mapping[str, object], all_queues: bool, *, runs_jobs: bool = True) -> Holdfast:
    """Return the application with the options applied, and configure logging."""
    from holdfast.cli.load import load_app, redirect

    hf = load_app(target)
    code = hf.settings.dsn
    redirect(hf, **{**given, **({"queues": ",".join(_every_queue(hf))} if all_queues else {})})
    configure_logs(hf.settings)
    _warn_of_other_database(code, given["dsn"], hf)
    if runs_jobs:
        _warn_of_unknown_queues(hf)
        _warn_of_unserved(hf)
    return hf


def _queues_in_code(hf: Holdfast) -> list[str]:
    """Return the queues of the application's tasks, and those that its schedules name."""
    tasks, schedules = hf.registry.tasks.values(), hf.registry.schedules.values()
    return sorted({"default", *(task.queue for task in tasks), *(each.job.queue for each in schedules)})


def _every_queue(hf: Holdfast) -> list[str]:
    """Return the queues in the application's code, and that of webhooks if it can deliver them."""
    from holdfast.client.delivery import can_deliver

    return sorted({*_queues_in_code(hf), *([QUEUE] if can_deliver() else [])})


def _warn_of_other_database(code: str, option: object, hf: Holdfast) -> None:
    """Warn if the code's DSN differs from the option or the environment: jobs would be enqueued elsewhere."""
    environment = Settings.load().dsn
    other = str(option or environment)
    if code == environment or not (code and other) or same_database(code, other):
        return
    fields = {"--dsn" if option else "HOLDFAST_DSN": shareable(other), "served": shareable(hf.settings.dsn)}
    logs.event(
        log,
        logging.WARNING,
        "the code names another database",
        code=shareable(code),
        **fields,
        hint="Holdfast() without a DSN takes HOLDFAST_DSN",
    )


def _warn_of_unknown_queues(hf: Holdfast) -> None:
    """Warn of queues that neither the code nor the database knows: the worker would wait forever.

    The queues of other workers do not count, because they may have the same typo."""
    known = [*_queues_in_code(hf), QUEUE]
    unknown = [name for name in hf.settings.queue_list if name not in known]
    if unknown:
        names = sorted({*known, *queues_in_database(hf.settings)})
        for name in (each for each in unknown if each not in names):
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else "no task or schedule uses it, and no job waits in it"
            logs.event(log, logging.WARNING, "queue unknown", queue=name, hint=hint)


def queues_in_database(settings: Settings) -> list[str]:
    """Return the queues of the database's tasks, schedules and jobs, or none if it is not reachable within PATIENCE."""
    from holdfast.client import Holdfast
    from holdfast.client.database import Database

    quick = {name: min(getattr(settings, name), PATIENCE) for name in ("connect_timeout", "call_timeout")}
    with Holdfast() as hf:
        hf.database = Database(settings.with_(**quick))
        try:
            return hf.queues.names(of_workers=False)
        except HoldfastError:
            return []


def _warn_of_unserved(hf: Holdfast) -> None:
    """Warn of queues in the code that this worker does not serve: it would look idle and healthy."""
    from holdfast.client.delivery import with_queues

    if not hf.registry.tasks.keys() - {TASK}:
        logs.event(log, logging.WARNING, "no tasks are registered", hint="import the modules that define them")
    elsewhere = sorted(set(_queues_in_code(hf)) - {"default", *with_queues(hf, hf.settings).queue_list})
    if elsewhere:
        logs.event(
            log,
            logging.WARNING,
            "queues not served here",
            queues=",".join(elsewhere),
            hint="--queues NAMES or --all-queues",
        )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a worker to its end. A loop with a running thread is not closed, because closing waits for it."""
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        return runner.run(_with_own_threads(work))
    finally:
        if not remaining_threads():
            runner.close()


async def _with_own_threads(work: Coroutine[Any, Any, T]) -> T:
    """Give the loop an executor that can be abandoned. The loop waits for its own when it closes."""
    threads = ThreadPoolExecutor(thread_name_prefix="holdfast-loop")
    asyncio.get_running_loop().set_default_executor(threads)
    try:
        return await work
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
