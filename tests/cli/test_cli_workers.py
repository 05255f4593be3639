"""`holdfast workers`."""

from __future__ import annotations

import re

from holdfast import Holdfast
from tests.support.flow import Sql, claim_on, put
from tests.support.program import as_json, holdfast, ran


def register(hf: Holdfast, worker: str) -> None:
    calls = hf.database.calls.workers
    hf.database.sync_pool.run(calls.register(worker, "host-a", 42, "1.2.3", ["mail"], 8, []))


def test_workers_are_listed_with_what_they_run(dsn: str, hf: Holdfast, sql: Sql) -> None:
    register(hf, "w-1")
    put(sql)
    claim_on(sql, "w-1")
    header, line = holdfast(dsn, "workers").stdout.splitlines()[:2]
    assert header.split()[:6] == ["id", "state", "host", "pid", "running", "slots"]
    assert line.split()[:7] == ["w-1", "alive", "host-a", "42", "1", "8", "mail"]
    (shown,) = as_json(holdfast(dsn, "workers", "--json"))
    assert (shown["id"], shown["state"], shown["jobs"], shown["tasks"]) == ("w-1", "alive", 1, ["t"])


def test_a_narrow_terminal_shows_everything_of_a_worker(dsn: str, hf: Holdfast, sql: Sql) -> None:
    register(hf, id_ := "host-a-42-018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f")
    sql("UPDATE workers SET stopping = true")
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "workers", COLUMNS="80", FORCE_COLOR="1").stdout)
    assert shown.startswith(id_) and "stopping" in shown and "version 1.2.3" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_workers_the_list_says_how_to_start_one(dsn: str) -> None:
    assert "holdfast worker MODULE:ATTRIBUTE" in holdfast(dsn, "workers").stdout
    assert as_json(holdfast(dsn, "workers", "--json")) == []


def test_a_worker_is_asked_to_stop_with_a_reason(dsn: str, hf: Holdfast) -> None:
    register(hf, "mail-1")
    done = holdfast(dsn, "workers", "stop", "mail", "--by", "ada", "--reason", "host is replaced")
    assert done.stdout == "mail-1: draining\n"
    assert "ada: host is replaced" in " ".join(holdfast(dsn, "workers").stdout.split())
    assert as_json(holdfast(dsn, "workers", "stop", "mail-1", "--now", "--json")) == {
        "id": "mail-1",
        "outcome": "stopping",
    }
    kinds = [each["kind"] for each in as_json(holdfast(dsn, "audit", "--json"))]
    assert kinds == ["workers.stop", "workers.drain"]


def test_a_worker_that_is_unknown_or_one_of_several_is_named(dsn: str, hf: Holdfast) -> None:
    register(hf, "mail-1")
    register(hf, "mail-2")
    unknown, several = (holdfast(dsn, "workers", "stop", name) for name in ("web", "mail"))
    assert unknown.exit_code == several.exit_code == 2
    assert "there is no worker 'web'; `holdfast workers` lists" in unknown.stderr
    assert "begins with 'mail': mail-1, mail-2" in several.stderr
