"""Run the `holdfast` program: in this process for speed, or as a process of its own from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from holdfast.cli.app import app

COMMAND = [sys.executable, "-m", "holdfast.cli"]


def holdfast(dsn: str, *arguments: str, stdin: str | None = None) -> Result:
    """Run one command in this process; `stdin` is what the user types."""
    return CliRunner().invoke(app, list(arguments), env={"HOLDFAST_DSN": dsn}, input=stdin)


def as_json(result: Result) -> Any:
    """Return a command's stdout parsed as JSON; the command must have succeeded."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def environment(dsn: str, **more: str) -> dict[str, str]:
    """Return the environment of a separate program."""
    return {**os.environ, "HOLDFAST_DSN": dsn, "PYTHONUNBUFFERED": "1", **more}


def ran(dsn: str, *arguments: str, folder: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one command as a process of its own, to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(dsn, **env),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def started(dsn: str, *arguments: str, folder: Path, command: Sequence[str] = COMMAND, **env: str) -> Iterator[Program]:
    """Start a command that runs on; kill it at the end if it still does."""
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env=environment(dsn, **env),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Program(process, folder / "output")
        finally:
            process.kill()
            process.wait()


class Program:
    """A running program and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text()

    def ended(self, seconds: float = 60) -> int:
        """Wait for its exit code and return it."""
        return self.process.wait(seconds)
