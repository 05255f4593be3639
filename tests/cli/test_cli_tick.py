"""`holdfast tick`: one pass as a process of its own, and many of them at once."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.cli import tick, worker
from holdfast.model.tick import Tick
from holdfast.settings import Settings
from tests.support import flow
from tests.support.flow import Sql
from tests.support.program import ran

APP = """
import os
from holdfast import CONTEXT, Context, Holdfast

hf = Holdfast()

@hf.task(name="tick_app.note")
async def note(*, ctx: Context = CONTEXT) -> None:
    with open("notes", "a") as notes:
        notes.write(f"{ctx.job_id}\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tick_app.py").write_text(APP)
    return tmp_path


def test_a_tick_says_what_it_did_in_a_table_and_as_json(dsn: str, sql: Sql, folder: Path) -> None:
    flow.put(sql, task="tick_app.note", tenant="acme", number=30)
    flow.put(sql, task="tick_app.note", number=2)
    shown = ran(dsn, "tick", "tick_app:hf", folder=folder)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines() if line.strip()]
    assert lines[1] == ["27", "27", "27", "0", "1", "0", "5"], "acme had its 25, so its lane was throttled"
    assert ["acme", "25"] in lines and ["(none)", "2"] in lines
    done = ran(dsn, "tick", "tick_app:hf", "--max-jobs", "4", "--json", folder=folder)
    document = json.loads(done.stdout)
    assert (document["claimed"], document["succeeded"], document["depth"], document["tenants"]) == (
        4,
        4,
        1,
        {"acme": 4},
    )
    assert sql("select claimed from ticks order by started_at") == [(27,), (4,)]


def test_a_depth_that_is_estimated_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    for depth, shown in ((10_000, "10,000"), (20_000, "~20,000")):
        tick.show(Tick("id", "w", 1.0, 0, 0, 0, 0, 0, 0, depth, {}))
        assert capsys.readouterr().out.split()[-1] == shown


def test_ticks_of_many_processes_at_once_run_nothing_twice(dsn: str, sql: Sql, folder: Path) -> None:
    for n in range(10):
        flow.put(sql, task="tick_app.note", tenant=f"t{n}", number=40)
    options = ("--max-jobs", "60", "--per-tenant", "7", "--json")
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(lambda _: ran(dsn, "tick", "tick_app:hf", *options, folder=folder), range(4)))
    documents = [json.loads(done.stdout) for done in every]
    assert all(each["claimed"] <= 60 and max(each["tenants"].values()) <= 7 for each in documents)
    notes = Counter((folder / "notes").read_text().split())
    assert set(notes.values()) == {1}
    assert len(notes) == sum(each["succeeded"] for each in documents) >= 200


CRAWLER = """
from holdfast import Holdfast

hf = Holdfast()

@hf.task(queue="crawl")
async def visit() -> None: ...

visit.using(queue="nightly").schedule("visits", "0 3 * * *")
"""
REGISTERED = """[{"name": "digest", "task": "mail.digest", "cron": "0 3 * * *", "zone": "UTC", "missed": "once",
    "payload": {}, "options": {"queue": "digests"}}]"""


def unknown_queues(dsn: str, folder: Path, *queues: str) -> list[tuple[str, str]]:
    """Return the queues that a tick warns of, each with its hint."""
    (folder / "crawler.py").write_text(CRAWLER)
    done = ran(dsn, "tick", "crawler:hf", "--queues", ",".join(queues), "--log-format", "json", folder=folder)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["queues"] for line in lines if line["event"] == "queues not served here"] == ["nightly"]
    return [(line["queue"], line["hint"]) for line in lines if line["event"] == "queue unknown"]


def test_a_queue_that_neither_the_code_nor_the_database_knows_is_warned_of_with_what_was_meant(
    dsn: str, sql: Sql, tmp_path: Path
) -> None:
    flow.put(sql, queue="reports")
    # A worker with the same typing error does not make the queue known.
    sql("select register_worker('w', 'h', 1, '1', '{crwl}', 1, '[]'::jsonb)")
    assert unknown_queues(dsn, tmp_path, "crwl", "reprots", "zzz", "reports", "crawl", "default") == [
        ("crwl", "did you mean crawl?"),
        ("reprots", "did you mean reports?"),
        ("zzz", "no task or schedule uses it, and no job waits in it"),
    ]


def test_the_queue_of_a_declared_or_registered_schedule_is_known(folder: Path, dsn: str, sql: Sql) -> None:
    sql("select register_schedules(%s::jsonb)", [REGISTERED])
    (folder / "crawler.py").write_text(CRAWLER)
    done = ran(dsn, "tick", "crawler:hf", "--queues", "crawl,nightly,digests", folder=folder)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


def test_a_tick_says_what_waits_in_queues_that_neither_it_nor_a_worker_serves(dsn: str, sql: Sql, folder: Path) -> None:
    for queue in ("reports", "mail", "default"):
        flow.put(sql, task="tick_app.note", queue=queue, number=2)
    sql("select register_worker('w', 'h', 1, '1', '{mail}', 1, '[]'::jsonb)")
    done = ran(dsn, "tick", "tick_app:hf", "--max-jobs", "1", folder=folder)
    assert done.returncode == 0
    assert 'jobs wait in queues not served queues="reports (2 jobs)"' in done.stderr, done.stderr
    done = ran(dsn, "tick", "tick_app:hf", "--queues", "default,reports", folder=folder)
    assert "jobs wait" not in done.stderr


def test_a_database_that_is_away_is_not_waited_for_to_judge_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PATIENCE", 0.1)
    assert worker.queues_in_database(Settings.load(dsn="postgresql://127.0.0.1:1/none")) == []
