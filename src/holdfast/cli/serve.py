"""`holdfast serve`: serve the HTTP API and the dashboard of an application."""

from __future__ import annotations

import importlib.util
import logging
import math
import socket
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Common, Target
from holdfast.cli.worker import AllQueues, Queues, prepared
from holdfast.errors import ConfigurationError
from holdfast.telemetry import logs

if TYPE_CHECKING:
    import uvicorn

    from holdfast.client import Holdfast
    from holdfast.telemetry.systemd import Notifier

log = logs.get("cli")


def serve(
    target: Target,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")] = 8000,
    tick: Annotated[
        bool, typer.Option("--tick", help="Serve POST /v1/tick too, which needs one of HOLDFAST_TICK_SECRETS.")
    ] = False,
    queues: Queues = None,
    all_queues: AllQueues = False,
    common: Common,
) -> None:
    """Serve the HTTP API and the dashboard until stopped. It runs no jobs, except with --tick.

    Callers need a token: holdfast tokens create. --queues and --all-queues
    apply to ticks that name no queues.
    """
    from holdfast.web import app

    if importlib.util.find_spec("uvicorn") is None:
        raise ConfigurationError("holdfast serve needs: pip install 'holdfast-jobs[web]' (uvicorn is missing)")
    import uvicorn

    from holdfast.store.wire.connect_once import connect_once
    from holdfast.web.connections import server_options
    from holdfast.worker import keep_what_is_loaded

    hf = prepared(target, {"queues": queues, **common}, all_queues, runs_jobs=tick)
    made = app(hf, tick_endpoint=tick)
    connect_once(hf.settings)  # fails now, not at the first request, if the address is wrong or the schema is old
    _check_rights(hf, tick)
    config = uvicorn.Config(
        made,
        host,
        port,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=math.ceil(hf.settings.grace),
        **server_options(hf.settings),
    )
    server = _server(config)
    sys.setswitchinterval(0.001)  # bounds how long threads that check large bodies delay the event loop
    with _listening(host, port, config.backlog) as listening:
        address, bound = listening.getsockname()[:2]
        keep_what_is_loaded()
        root = f"http://{address}:{bound}"
        pages = {"dashboard": f"{root}/"} if hf.settings.dashboard else {}
        logs.event(log, logging.INFO, "serving", url=f"{root}/v1", **pages, tick=tick)
        server.run(sockets=[listening])


def _server(config: uvicorn.Config) -> uvicorn.Server:
    """Return a server, which reports to the service manager if one has started this process."""
    import uvicorn

    from holdfast.telemetry import systemd

    notifier = systemd.notifier()
    return uvicorn.Server(config) if notifier is None else _reporting(config, notifier)


def _reporting(config: uvicorn.Config, notifier: Notifier) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            notifier.ready()  # the first tick follows the start of the listener
            notifier.alive(lambda: True)
            return await super().on_tick(counter)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            notifier.stopping()
            await super().shutdown(sockets)

    return Server(config)


def _check_rights(hf: Holdfast, tick: bool) -> None:
    """Raise ConfigurationError for missing rights, which callers would see only as a 503."""
    from holdfast.store.doctor import DoctorCalls

    wanted = {"use_token": "service"} | ({"claim": "worker"} if tick else {})
    may = hf.database.sync_pool.run(DoctorCalls(hf.settings.schema).rights(list(wanted)))
    if lacking := [f"{hf.settings.schema}_{role}" for name, role in wanted.items() if not may.get(name)]:
        raise ConfigurationError(
            f"the database user may not serve{' ticks' if tick else ''}: GRANT {', '.join(lacking)} TO <user>"
            f"{', or leave out --tick' if lacking == [f'{hf.settings.schema}_worker'] else ''}"
        )


def _listening(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket, so that clients can connect as soon as the address is logged."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0]
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {why}; choose another with --port or --host"
        ) from None
