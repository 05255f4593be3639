"""`holdfast serve`: an application's jobs over HTTP."""

from __future__ import annotations

import importlib.util
import logging
from typing import Annotated

import typer

from holdfast.cli.options import Dsn, Schema, Target
from holdfast.cli.worker import LogFormat, LogLevel, configure_logs
from holdfast.errors import ConfigurationError
from holdfast.telemetry import logs

log = logs.get("cli")


def serve(
    target: Target,
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")] = 8000,
    tick: Annotated[
        bool, typer.Option("--tick", help="Serve POST /v1/tick too, for those who know HOLDFAST_TICK_SECRETS.")
    ] = False,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Serve the HTTP API until stopped. It makes and reads jobs and never runs any, but for --tick.

    Callers need a token: holdfast tokens create.
    """
    from holdfast.cli.load import load_app, redirect

    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"{missing[0]} is not installed; run: pip install 'holdfast[web]'")
    import uvicorn

    from holdfast.store.pools import first_look
    from holdfast.web import app

    hf = load_app(target)
    redirect(hf, log_format=log_format, log_level=log_level, dsn=dsn, schema=schema)
    configure_logs(hf.settings)
    made = app(hf, tick_endpoint=tick)
    first_look(hf.settings)  # a wrong address or an old schema is told now, not to the first caller
    config = uvicorn.Config(made, host, port, log_config=None, access_log=False, server_header=False, ws="none")
    with config.bind_socket() as socket:
        socket.listen(config.backlog)  # so that whoever reads the line below may come at once
        address, bound = socket.getsockname()[:2]
        logs.event(log, logging.INFO, "serving", url=f"http://{address}:{bound}/v1", tick=tick)
        uvicorn.Server(config).run(sockets=[socket])
