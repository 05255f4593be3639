"""The dashboard of `holdfast dev`: without sign-in, and so on loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast.cli import render
from holdfast.cli.load import load_app, redirect
from holdfast.client import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.settings import Settings

HOST = "127.0.0.1"
MODULES = ("uvicorn", "starlette", "jinja2", "prometheus_client")  # of the extra `web`


def listen(port: int) -> socket.socket | None:
    """Return a socket of the dashboard: at this port, or a free one if it is taken; None without the extra `web`."""
    if not all(importlib.util.find_spec(name) for name in MODULES):
        return None
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        listening = socket.create_server((HOST, 0))
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be opened ({os.strerror(error.errno or 0)})"
        render.note(f"port {port} {why}; using {listening.getsockname()[1]}", "yellow")
        return listening


def address(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}/"


@contextlib.asynccontextmanager
async def dashboard(settings: Settings, listening: socket.socket | None, target: str) -> AsyncIterator[None]:
    """Serve the dashboard and the API, with the application's tasks as they are now, for the length of a block."""
    if listening is None:
        yield
        return
    import uvicorn

    from holdfast.web import app

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the supervisor handles them

    hf = _application(target, settings)
    options: Any = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "ws": "none",
        "proxy_headers": False,
    }
    server = Server(uvicorn.Config(app(hf, open_on_loopback=True), timeout_graceful_shutdown=1, **options))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def _application(target: str, settings: Settings) -> Holdfast:
    """Return the application, or one without tasks if its code is broken now: the worker says what is wrong with it."""
    try:
        hf = load_app(target)
    except ConfigurationError:
        return Holdfast(settings.dsn, schema=settings.schema)
    redirect(hf, dsn=settings.dsn, schema=settings.schema)
    return hf
