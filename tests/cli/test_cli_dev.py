"""`holdfast dev`: a database of its own, and a worker that follows the code."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.cli.dashboard import listen
from holdfast.cli.dev import watched
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.testing import scratch_database
from tests.conftest import wait_until
from tests.support.program import ran, started

APP = """
import pathlib
from holdfast import Holdfast

hf = Holdfast()

@hf.task(name="app.write", queue="papers")
async def write() -> None:
    pathlib.Path("written").write_text("VERSION")
@hf.task(name="app.stumble", queue="papers")
def stumble() -> None:
    1 / 0
"""


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """The server that `dev` starts in this folder; stopped at the end, whatever has happened to its users."""
    server = EmbeddedPostgres(tmp_path / ".holdfast")
    yield server
    server.stop()


def test_dev_starts_a_database_runs_jobs_and_follows_the_code(tmp_path: Path, embedded: EmbeddedPostgres) -> None:
    code, written = tmp_path / "dev_app.py", tmp_path / "written"
    code.write_text(APP.replace("VERSION", "one"))
    with started("", "dev", "dev_app:hf", folder=tmp_path) as program:
        wait_until(lambda: "worker started" in program.output)
        assert f"export HOLDFAST_DSN=embedded:{tmp_path}/.holdfast" in program.output
        assert re.search(r"url +postgresql://postgres@/holdfast\S+ \(for other libraries and psql, ", program.output)
        assert "psql 'postgresql://postgres@/holdfast" in program.output
        dsn = f"embedded:{tmp_path}/.holdfast"
        assert ran(dsn, "jobs", "enqueue", "app.write").returncode == 0
        wait_until(lambda: written.exists() and written.read_text() == "one")

        found = re.search(r"dashboard +(http://127\.0\.0\.1:\d+/)", program.output)
        assert found is not None
        assert "Overview" in httpx.get(found[1], timeout=30).text, "open on this machine"
        rebound = httpx.get(found[1], headers={"Host": "rebound.example"}, timeout=30)
        assert rebound.status_code == 303 and rebound.headers["location"].startswith("/sign-in")

        assert ran(dsn, "jobs", "enqueue", "app.stumble").returncode == 0
        wait_until(lambda: "ZeroDivisionError: division by zero\n" in program.output)
        assert '  Traceback (most recent call last):\n    File "' in program.output
        assert 'dev_app.py", line 12, in stumble\n      1 / 0\n' in program.output

        code.write_text("this is not Python")
        wait_until(lambda: "importing 'dev_app' failed" in program.output)
        code.write_text(APP.replace("VERSION", "two"))
        wait_until(lambda: program.output.count("worker started") == 2)
        assert ran(dsn, "jobs", "enqueue", "app.write").returncode == 0
        wait_until(lambda: written.read_text() == "two")

        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 0
    assert embedded.pid is None


@pytest.mark.parametrize(
    ("target", "expected"), [("app", "names no attribute; write .*app:hf"), (":hf", "names no module")]
)
def test_dev_refuses_a_target_that_no_change_of_a_file_could_mend(tmp_path: Path, target: str, expected: str) -> None:
    done = ran("", "dev", target, folder=tmp_path)
    assert done.returncode == 2 and re.search(expected, done.stderr)
    assert not (tmp_path / ".holdfast").exists(), "no database was started for it"


def test_dev_runs_without_watchfiles_and_says_so(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "dev_app.py").write_text(APP)
    # A module that importlib cannot find.
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['watchfiles'] = None")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    with started(dsn, "dev", "dev_app:hf", folder=tmp_path, PYTHONPATH=path) as program:
        wait_until(lambda: "worker started" in program.output)
        assert "reload is off: watchfiles is not installed" in program.output
        (url,) = re.findall(r"dashboard +(http://127\.0\.0\.1:\d+/)", program.output)
        token = ran(dsn, "tokens", "create", "me", "--all-tenants", "--scopes", "jobs:write").stdout.strip()
        for task, status in (("app.write", 201), ("app.other", 422)):
            made = httpx.post(
                f"{url}v1/jobs", json={"task": task}, headers={"Authorization": f"Bearer {token}"}, timeout=30
            )
            assert made.status_code == status, made.text
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() == 0


@pytest.mark.parametrize("option", [True, False])
def test_dev_warns_when_the_code_names_another_database(dsn: str, pg18: str, tmp_path: Path, option: bool) -> None:
    with contextlib.ExitStack() as stack:
        if option:
            code, environment, arguments = "postgresql://me:secret@127.0.0.1:1/theirs", "", ["--dsn", dsn]
            expected = f'code=postgresql://me:***@127.0.0.1:1/theirs --dsn="{dsn}" served="{dsn}" '
        else:
            code, environment, arguments = dsn, stack.enter_context(scratch_database(pg18)), []
            expected = f'code="{code}" HOLDFAST_DSN={environment} served="{code}" '
        (tmp_path / "dev_app.py").write_text(APP.replace("Holdfast()", f"Holdfast({code!r})"))
        program = stack.enter_context(
            started(environment, "dev", "dev_app:hf", "--no-reload", *arguments, folder=tmp_path)
        )
        wait_until(lambda: "worker started" in program.output)
        (line,) = [line for line in program.output.splitlines() if "the code names another database" in line]
        assert expected in line and "secret" not in program.output
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() == 0


def test_a_taken_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        listening = listen(port)
        assert listening is not None
        with listening:
            assert capsys.readouterr().err == f"port {port} is taken; using {listening.getsockname()[1]}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="hidden folders are recognized by their names")
def test_hidden_folders_and_environments_are_not_watched(tmp_path: Path) -> None:
    for name in (".holdfast", "src", "env", "__pycache__"):
        (tmp_path / name).mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert list(watched(tmp_path)) == [([tmp_path], False), ([tmp_path / "src"], True)]
