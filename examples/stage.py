"""Shared by the runs of the examples: a fresh database, worker processes, tables and a checklist.

Applications do not import this. Copy a folder without `__main__.py` and the tests, and nothing is missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
import psycopg
import uvicorn
from psycopg.rows import namedtuple_row
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from holdfast import Holdfast

HERE = Path(__file__).parent
T = TypeVar("T")
P = TypeVar("P", bound="Process")


def wait_for(what: str, look: Callable[[], T], seconds: float = 40, pause: float = 0.05) -> T:
    """Wait until the look returns something, and return it."""
    ends = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > ends:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(pause)
    return found


class Process:
    """A `holdfast` command of an application, its log in a file."""

    command: tuple[str, ...]
    started: str  # its log when it is ready

    def __init__(self, app: str, folder: Path, name: str, **env: object) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        verb, *options = self.command
        environ = os.environ | {key: str(value) for key, value in env.items()}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", verb, app, *options],
                cwd=HERE,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def has_started(self) -> bool:
        if self.process.poll() is not None:
            raise ChildProcessError(f"{self.name} has ended")
        return self.started in self.log.read_text()

    def kill(self) -> None:
        """`kill -9`: it gives nothing back."""
        with self.process:
            self.process.kill()


class Worker(Process):
    """A `holdfast worker`. It ends when this process does, however that ends."""

    command = ("worker", "--stop-with-stdin")
    started = "worker started"


class TickService(Process):
    """`holdfast serve --tick`, which runs jobs at each tick request."""

    command = ("serve", "--tick", "--port", "0")
    started = "serving"

    @property
    def url(self) -> str:
        return re.search(r"http://127\.0\.0\.1:\d+/v1", self.log.read_text())[0]  # type: ignore[index]


@contextlib.contextmanager
def at_work(*workers: P) -> Iterator[tuple[P, ...]]:
    """Run workers for the length of a block, all of them started. Stop them in good order, or kill them on an error."""
    try:
        for each in workers:
            wait_for(f"{each.name} to start", each.has_started)
        yield workers
        for each in workers:
            each.process.terminate()
        for each in workers:
            each.process.wait(30)
    except Exception as error:
        for each in workers:
            error.add_note(f"{each.log.name} ends with: {each.log.read_text()[-500:]}")
        raise
    finally:
        for each in workers:
            each.kill()


@contextlib.contextmanager
def serving(app: Any) -> Iterator[httpx.Client]:
    """Serve a web tier on a free port, in a thread of this process, and yield a client."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for("the web tier", lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


class Stage:
    """One run: it prints what happens, queries the database, and records which promises were kept."""

    def __init__(self, name: str, hf: Holdfast, conn: psycopg.Connection[Any], folder: Path) -> None:
        self.hf, self.conn, self.folder = hf, conn, folder
        self.broken: list[str] = []  # promises
        self._name, self._began = name, time.monotonic()
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        self._checklist = Table("promise", "measured", "", title="Promises", title_justify="left")

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {text}", soft_wrap=True)

    def rows(self, query: str, *values: object) -> list[Any]:
        return self.conn.execute(query.encode(), values or None).fetchall()

    def show(self, title: str, query: str, *values: object) -> None:
        """Print the rows of a query as a table."""
        cursor = self.conn.execute(query.encode(), values or None)
        columns = [Column(column.name, overflow="fold") for column in cursor.description or ()]
        table = Table(*columns, title=title, title_justify="left", min_width=len(title))
        for row in cursor.fetchall():
            table.add_row(*map(_cell, row))
        self._console.print(table)

    def worker(self, name: str, **env: object) -> Worker:
        return Worker(f"{self._name}.app:hf", self.folder, name, HOLDFAST_DSN=self.hf.database.url, **env)

    def wait_for(self, what: str, look: Callable[[], T]) -> T:
        with self._console.status(f"waiting for {what}"):
            return wait_for(what, look)

    def follow(self, what: str, look: Callable[[], dict[str, int]], ended: set[str], seconds: float = 120) -> None:
        """Show how many jobs are in which status until all have ended."""
        last = time.monotonic()

        def over() -> bool:
            nonlocal last
            counts = look()
            text = f"{what}: {', '.join(f'{number} {name}' for name, number in sorted(counts.items()) if number)}"
            status.update(text)
            if not self._console.is_terminal and time.monotonic() > last + 5:
                last = time.monotonic()
                self.say(text)
            return not any(number for name, number in counts.items() if name not in ended)

        with self._console.status(what) as status:
            wait_for(what, over, seconds, pause=0.2)
        self.say(f"{what}: done")

    def check(self, promise: str, measured: object, kept: bool) -> None:
        if not kept:
            self.broken.append(f"{promise}: {measured}")
        self._checklist.add_row(promise, escape(str(measured)), "[green]PASS" if kept else "[bold red]FAIL")

    def end(self, look_at: str) -> int:
        """Print the checklist, and how to remove the rest. Return the exit code: 1 if a promise was not kept."""
        self._console.print(self._checklist)
        dsn = self.hf.settings.dsn
        if dsn.startswith("embedded:"):
            dsn = f"embedded:{os.path.relpath(dsn.removeprefix('embedded:'), HERE.parent)}"
        else:
            dsn = '"$HOLDFAST_DSN"'  # it may have a password
        self.say(f"The database stays; examples/{self._name}/README.md says what to look at. From the top folder:")
        self._console.print(f".venv/bin/holdfast {look_at} --dsn {dsn}", soft_wrap=True)
        return 1 if self.broken else 0


def run(name: str, hf: Holdfast, play: Callable[[Stage], None], look_at: str) -> int:
    """Run it on a fresh database and return the exit code."""
    if sys.argv[1:]:
        print(f"error: this run takes no arguments; it was given: {' '.join(sys.argv[1:])}", file=sys.stderr)
        return 2
    logging.getLogger("holdfast").setLevel("CRITICAL")  # an error of the run is part of its output
    try:
        with (
            hf,
            psycopg.connect(hf.database.url, autocommit=True, row_factory=namedtuple_row) as conn,
            tempfile.TemporaryDirectory() as folder,
        ):
            _begin_anew(name, hf, conn)
            stage = Stage(name, hf, conn, Path(folder))
            stage.say(f"[bold]{name}[/] begins, with a fresh database")
            try:
                play(stage)
            except (TimeoutError, ChildProcessError) as error:  # the machine is very busy, or something is broken
                stage.check("everything starts and ends in time", error, False)
                for note in getattr(error, "__notes__", ()):
                    stage.say(escape(note))
            return stage.end(look_at)
    except KeyboardInterrupt:
        return 130


def _begin_anew(name: str, hf: Holdfast, conn: psycopg.Connection[Any]) -> None:
    """Drop what an earlier run left, so that the figures are this run's. Other jobs stay."""
    with contextlib.suppress(psycopg.errors.UndefinedTable):
        has_jobs = conn.execute("select 1 from holdfast.jobs limit 1").fetchone()
        if has_jobs and not hf.settings.dsn.startswith("embedded:"):
            sys.exit("error: HOLDFAST_DSN names a database with jobs, which this run would drop; name another, or none")
    conn.execute(f"drop schema if exists holdfast, {name} cascade".encode())
    hf.migrate()
    conn.execute((HERE / name / "schema.sql").read_bytes())
    conn.execute(f"set search_path to {name}".encode())


def _cell(value: Any) -> str:
    """Shorten a value for a terminal: the time of day, and the end of an id, which differs."""
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S}"
    return str(value)[-12:] if isinstance(value, UUID) else "" if value is None else escape(str(value))
