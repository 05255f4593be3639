"""The guide docs/guides/fastapi.md and its service, exactly as written: under uvicorn, with a worker beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.pages import Page, free_port, settings

Sql = Callable[..., list[tuple[Any, ...]]]
ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples/web_fastapi"


@contextmanager
def running(dsn: str, log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of the example's folder for the length of a block; it must exit cleanly on SIGTERM."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=EXAMPLE, env=os.environ | {"DATABASE_URL": dsn}, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        code = process.wait(60)
    assert code in (0, -signal.SIGTERM), log.read_text()  # uvicorn shuts down in order, then lets the signal end it


@pytest.fixture
def no_tables(sql: Sql) -> Iterator[None]:
    """A database without the service's own tables, before and after."""
    sql("drop table if exists public.orders, public.stock")
    yield
    sql("drop table public.orders, public.stock")


@pytest.fixture
def address(dsn: str, sql: Sql, no_tables: None, tmp_path: Path) -> Iterator[str]:
    """The service's URL."""
    sql("set search_path = public")
    sql((EXAMPLE / "tables.sql").read_text())
    sql("set search_path = holdfast")
    log = tmp_path / "uvicorn.log"
    with running(dsn, log, sys.executable, "-m", "uvicorn", "app:web", "--port", "0"):
        found = wait_until(lambda: re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text()))
        yield found[1]


def ask(url: str, method: str = "GET") -> tuple[int, Any]:
    """Return a request's status and the body of its response."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 - loopback, from the fixture
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_guide_shows_the_example_as_it_is() -> None:
    shown = re.search(r"```python\n(.*?)```", (ROOT / "docs/guides/fastapi.md").read_text(), re.S)
    assert shown and shown[1] == (EXAMPLE / "app.py").read_text()
    shown = re.search(r"```sql\n(.*?)```", (ROOT / "docs/guides/fastapi.md").read_text(), re.S)
    assert shown and shown[1] == (EXAMPLE / "tables.sql").read_text()


@pytest.mark.parametrize("way", ["an embedded PostgreSQL", "your own server"])
def test_the_commands_of_the_guide_run(
    way: str, dsn: str, no_tables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *ways = (ROOT / "docs/guides/fastapi.md").read_text().split("\n## ")
    (commands,) = (each for each in ways if each.startswith(f"With {way}\n"))
    if "$ psql" in commands and shutil.which("psql") is None:
        pytest.skip("NO PSQL: install PostgreSQL's client")
    page = tmp_path / "page.md"
    page.write_text(f"{program}\n## {commands}")
    settings(dsn, tmp_path, monkeypatch)
    Page(page, tmp_path, dsn, {"8010": free_port()}).run()


def test_an_order_that_fails_leaves_no_job(address: str, sql: Sql) -> None:
    assert ask(f"{address}/orders?item=teapot&email=ada@example.org", "POST")[0] == 202
    assert ask(f"{address}/orders?item=teapot&email=bob@example.org", "POST") == (409, {"detail": "no teapot is left"})
    assert sql("select count(*) from public.orders") == [(1,)]
    assert sql("select payload ->> 'email' from jobs") == [("ada@example.org",)]


def test_an_unknown_job_is_not_found(address: str) -> None:
    assert ask(f"{address}/jobs/{uuid.uuid4()}") == (404, {"detail": "no such job"})
    assert ask(f"{address}/jobs/17")[0] == 422
