"""Pages of the documentation, run as they are written.

- A block that begins with `# NAME.py` or `-- NAME.sql` is a file; any other python block is run where it stands.
- The lines of a console block that begin with `$ ` are commands, run in the folder of the files; the lines below are
  what they print. `...` stands for lines left out, or the rest of one; ids, times and durations may differ.
- A text block below a python block is what that prints.
- A command that stays (dev, worker, serve, uvicorn) runs until the page ends.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from holdfast import Holdfast
from tests.conftest import ROOT, wait_until
from tests.support.program import COMMAND, holdfast

BLOCK = re.compile(r"^(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.S | re.M)
# What needs a machine of one's own: packages, services, other people's servers.
ELSEWHERE = ("pip", "python3", ".", "source", "sudo", "createdb", "docker", "systemctl", "celery", "make", "git")
STAYS = re.compile(r"(holdfast (dev|worker|serve)|uvicorn) ")
STARTED = re.compile(r"worker started|running on http|Uvicorn running|listening|http://127\.0\.0\.1:(\d+)")
# Ids of jobs, workers and error groups.
NAMES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|worker-\d+-[0-9a-f]+|\b[0-9a-f]{16}\b")
LOOKS = re.compile(
    r"holdfast (jobs|dead|errors|why|top|limits|schedules|workers|batches|outbox|audit)\b"
    r"(?!.* (edit|retry|discard|cancel|set|run|reset|unblock)\b)|curl "
)
FINDS = re.compile(r"holdfast (doctor|migrate --check)")  # exit with 1 when something is wrong
VARIES = (
    (NAMES, "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]"), ""),
    (re.compile(r"\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"~?\b\d+(\.\d+)? (ms|s|min|h|d)\b"), "SPAN"),
    (re.compile(r"[·▁▂▃▄▅▆▇█]{4,}"), "CHART"),
    (re.compile(r"\bby [\w.-]+@[\w.-]+"), "by ME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block, and the note in the comment above it."""

    kind: str
    text: str
    note: str

    @property
    def file(self) -> str | None:
        """The name of the file that it is, if it is one."""
        found = re.match(r"(?:#|--) ([\w/]+\.\w+)\n", self.text)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    return [Block(it["kind"], it["text"], it["note"] or "") for it in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def programs(page: Path) -> list[tuple[str, str]]:
    """Return the named programs of a page, those below `<!-- run: NAME -->`, in their order."""
    return [(it.note.removeprefix("run: "), it.text) for it in blocks(page) if it.note.startswith("run: ")]


class Page:
    """Runs a page in a folder, on a database. An id or a port of the page stands for the one that there really is."""

    def __init__(self, path: Path, folder: Path, dsn: str, values: dict[str, str] | None = None) -> None:
        self._path = path
        self._folder = folder
        self._dsn = dsn
        self._values = values or {}  # what texts of the page stand for
        self._names: dict[str, Any] = {"__name__": "page"}
        self._printed = ""
        self._staying: list[subprocess.Popen[bytes]] = []
        self._env = {
            "HOLDFAST_DSN": dsn,
            "DATABASE_URL": dsn,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), "."]),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOLDFAST_TEST_DSN": make_conninfo(dsn, dbname="postgres"),
            "PYTEST_ADDOPTS": "-p no:schemathesis -p no:hypothesispytest",  # two thirds of a start
        }

    def run(self) -> None:
        """Run the page from top to bottom."""
        modules = set(sys.modules)
        try:
            for block in blocks(self._path):
                self._run(block)
        finally:
            for process in self._staying:
                process.terminate()
            codes = [process.wait(60) for process in self._staying]
            self._forget(modules)
        assert all(code in (0, -15) for code in codes), codes

    def _run(self, block: Block) -> None:
        if block.file:
            (self._folder / block.file).parent.mkdir(exist_ok=True)
            (self._folder / block.file).write_text(block.text)
            if block.kind == "python":
                compile(block.text, f"{self._path.name}: {block.file}", "exec")
        elif block.kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, str(self._path), "exec", dont_inherit=True), self._names)  # noqa: S102 - ours
            self._printed = out.getvalue()
        elif block.kind == "text":
            self._compare(block.text, self._printed)
        elif block.kind in ("console", "sh"):
            for command, expected in commands(block.text):
                self._command(command, expected, fails=block.note == "fails")

    def _command(self, command: str, expected: str, *, fails: bool) -> None:
        for shown, real in self._values.items():
            command = command.replace(shown, real)
        words = shlex.split(command, comments=True)
        if not words or words[0] in ELSEWHERE:
            return
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._env.setdefault(name, value)
        elif STAYS.match(command) and "--help" not in words:
            self._stay(words)
        else:
            self._until_printed(command, words, expected, fails)

    def _until_printed(self, command: str, words: list[str], expected: str, fails: bool) -> None:
        """Run a command, and if it only looks, run it until it prints what the page shows: jobs take their time."""
        printed = ""

        def shown() -> bool:
            nonlocal printed
            code, printed = self._holdfast(words[1:]) if words[0] == "holdfast" else self._program(command)
            right = (code != 0) == fails or (code == 1 and FINDS.match(command) is not None)
            if not right and not LOOKS.match(command):
                raise AssertionError(f"{command} exited with {code}: {printed}")
            return right and not self._missing(expected, printed)

        try:
            assert wait_until(shown) if LOOKS.match(command) else shown()
        except AssertionError as error:
            raise AssertionError(
                f"{command} never printed {self._missing(expected, printed)} but: {printed}"
            ) from error

    def _holdfast(self, words: list[str]) -> tuple[int, str]:
        done = ran(self._dsn, [os.path.expandvars(word) for word in words])
        return done.exit_code, done.output

    def _program(self, command: str) -> tuple[int, str]:
        env = os.environ | self._env
        done = subprocess.run(  # noqa: S602 - a line of our own page
            command, shell=True, cwd=self._folder, env=env, capture_output=True, text=True, timeout=100, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def _stay(self, words: list[str]) -> None:
        log = self._folder / f"stays{len(self._staying)}.log"
        command = [*COMMAND, *words[1:]] if words[0] == "holdfast" else [sys.executable, "-m", *words]
        with log.open("wb") as out:
            env = os.environ | self._env
            process = subprocess.Popen(command, cwd=self._folder, env=env, stdout=out, stderr=out)
        self._staying.append(process)
        wait_until(lambda: STARTED.search(log.read_text()) or process.poll() is not None)
        assert process.poll() is None, log.read_text()

    def _compare(self, expected: str, printed: str) -> None:
        assert not self._missing(expected, printed), f"not printed: {self._missing(expected, printed)}\nbut: {printed}"

    def _missing(self, expected: str, printed: str) -> list[str]:
        """Return the expected lines that were not printed, in order; remember what their ids stand for."""
        left, missing = iter(printed.splitlines()), []
        for wanted in expected.splitlines():
            if wanted.strip() in ("", "..."):
                continue
            found = next((line for line in left if fits(alike(wanted), alike(line))), None)
            if found is None:
                missing.append(wanted)
            else:
                self._values |= dict(zip(NAMES.findall(wanted), NAMES.findall(found), strict=False))
        return missing

    def _forget(self, modules: set[str]) -> None:
        """Close the applications of the page, and forget its modules: another page has an app.py too."""
        for name in set(sys.modules) - modules:
            path = getattr(sys.modules[name], "__file__", None) or ""
            if path.startswith(str(self._folder)):
                self._close(vars(sys.modules.pop(name)))
        self._close(self._names)

    @staticmethod
    def _close(names: dict[str, Any]) -> None:
        for each in list(names.values()):
            if isinstance(each, Holdfast):
                each.close()


def ran(dsn: str, words: list[str]) -> Any:
    """Run a command in this process; take the log's handler away that it leaves, which writes to its own output."""
    logger = logging.getLogger("holdfast")
    before, level = logger.handlers[:], logger.level
    try:
        return holdfast(dsn, *words)
    finally:
        logger.handlers[:] = before
        logger.setLevel(level)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the lines that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, printed = part.replace("\\\n", " ").partition("\n")
        yield command, printed


def fits(wanted: str, line: str) -> bool:
    """Return whether a line is the wanted one, or begins like it where that ends in dots."""
    return line == wanted or (wanted.endswith("...") and line.startswith(wanted[:-3].rstrip()))


def alike(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, name in VARIES:
        line = pattern.sub(name, line)
    return line.strip()


def free_port() -> str:
    """Return a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def settings(dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a page expects of a terminal in a folder: its variables, and the folder itself."""
    monkeypatch.setenv("HOLDFAST_DSN", dsn)
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
