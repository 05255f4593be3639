"""The documents are true: what they show runs, what they name exists, nothing is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.settings import Settings
from tests.conftest import wait_until
from tests.support.commands import named_in, problem

Sql = Callable[..., list[tuple[Any, ...]]]
ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").glob("*/README.md"),
    ROOT / "bench" / "peers" / "README.md",
]
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]


def test_the_readmes_program_runs(hf: Holdfast, dsn: str, tmp_path: Path) -> None:
    program = re.search(r"```python\n(# app\.py.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert program
    (tmp_path / "app.py").write_text(program[1])
    env = os.environ | {"HOLDFAST_DSN": dsn}
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    job_id, status = done.stdout.split()
    assert status == "queued"
    command = [Path(sys.executable).parent / "holdfast", "worker", "app:hf", "--queues", "mail"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    try:
        info = wait_until(lambda: (i := hf.jobs.get(job_id)) and i.status is Status.SUCCEEDED and i)
    finally:
        worker.terminate()
        assert worker.wait(60) == 0
    assert info.result == "sent 'hello' to ada@example.org"


def test_the_readmes_reasons_run(dsn: str, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", dsn)
    program, reasons = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    names: dict[str, Any] = {"__name__": "app", **{name: getattr(holdfast, name) for name in holdfast.__all__}}
    with psycopg.connect(dsn) as names["conn"]:
        exec(program + reasons, names)  # noqa: S102 - our own page
    try:
        jobs = [("mail", "acme", None), ("mail", None, "app.send::global::order-42")]
        assert sql("select queue, tenant, dedupe_key from jobs order by tenant") == jobs
        assert list(names["hf"].registry.schedules) == ["morning mail"]
        sql("create table public.visits (domain text)")
        names["visit"].enqueue("shop.example", "k-1")
        assert names["hf"].tick().succeeded == 1
        assert sql("select domain from public.visits") == [("shop.example",)]
        assert sql("select key from outbox") == [("visited-shop.example",)]
    finally:
        names["hf"].close()
        sql("drop table if exists public.visits")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_every_picture_is_shown_and_every_one_shown_exists() -> None:
    sources = re.compile(r'src(?:set)?="([^"]+)"')
    shown = {(page.parent / name).resolve() for page in PAGES for name in sources.findall(page.read_text())}
    assert shown == set((ROOT / "docs" / "pictures").iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_test_and_source_file_named_exists(page: Path) -> None:
    for name in re.findall(r"`((?:tests|src|tools|docs|bench)/[\w./-]+)`", page.read_text()):
        assert "NNN" in name or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_named_exists_with_its_options(page: Path) -> None:
    found = {" ".join(words): problem(words) for words in named_in(page.read_text())}
    # Prose leaves some arguments out.
    wrong = {words: why for words, why in found.items() if why and "MissingParameter" not in why}
    assert wrong == {}


def test_the_guide_names_every_function_an_operator_or_client_may_call() -> None:
    guide = (ROOT / "docs/guides/sql.md").read_text()
    granted = re.findall(r"on function ([\w, '\n]+?) to", (ROOT / "src/holdfast/sql/grants.sql").read_text())
    names = set(re.findall(r"\w+", " ".join(granted)))
    inner = {
        "wake",
        "sleep",
        "take_lead",
        "upkeep",
        "register_worker",
        "unregister_worker",
        "clock",
        "register_limits",
        "record_tick",
        "count_waiting",
        "fit_keys",
    }
    assert [name for name in sorted(names - inner) if f"`{name}`" not in guide] == []


def test_the_guide_names_every_endpoint_of_the_service() -> None:
    from holdfast.web import app

    guide = (ROOT / "docs/guides/http.md").read_text()
    paths = app(Holdfast("postgresql://nowhere", tick_secrets="x" * 16), tick_endpoint=True).openapi()["paths"]
    for path in paths:
        first, *_, last = [*path.removeprefix("/v1").split("/")[1:], ""]
        assert f"/v1/{first}" in guide and last.strip("{}").removesuffix("_id") in guide, path


def test_settings_named_in_the_documents_exist() -> None:
    known = {f"HOLDFAST_{each.name.upper()}" for each in fields(Settings)} | {
        "HOLDFAST_DEBUG",
        "HOLDFAST_TEST_LOCAL_DSN",
        "HOLDFAST_TEST_LONG",
    }
    for page in PAGES:
        assert set(re.findall(r"HOLDFAST_[A-Z0-9_]+[A-Z]", page.read_text())) <= known, page


def test_every_decision_is_numbered_once() -> None:
    numbers = [file.name[:3] for file in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert numbers == [f"{n:03}" for n in range(1, len(numbers) + 1)]


def test_every_test_that_a_requirement_names_exists() -> None:
    """docs/requirements.md: `file::test, ::another of the same file`, or a note."""
    rows = re.findall(r"^\| 00[0-4] \|.*\|$", (ROOT / "docs/requirements.md").read_text(), re.M)
    assert {row[2:5] for row in rows} == {"000", "001", "002", "003", "004"}
    rows += re.findall(r"^\| - \|.*\|$", (ROOT / "docs/requirements.md").read_text(), re.M)
    wrong = [row for row in rows if _missing(row.split("|")[-2])]
    assert not wrong, "these name a test that is not there, or none and no note"


def _missing(shown: str) -> bool:
    file, named = "", re.findall(r"([\w./-]+\.py)?(?:::(\w+))?", shown)
    named = [(path, test) for path, test in named if path or test]
    for path, test in named:
        file = path or file
        text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        if not text or (test and not re.search(rf"def {test}\b", text)):
            return True
    return not named and not re.search("note:|superseded:|non-goal", shown)
