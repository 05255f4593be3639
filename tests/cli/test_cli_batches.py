"""`holdfast batches`: list, show, cancel, watch."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Batch, Holdfast, Task
from holdfast.cli import batches, follow
from tests.conftest import wait_until
from tests.support.program import as_json, holdfast, ran, started

Sql = Callable[..., list[tuple[Any, ...]]]
UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


@pytest.fixture
def row(hf: Holdfast) -> Task[[int], None]:
    @hf.task(name="app.row")
    def row(n: int) -> None: ...

    return row


@pytest.fixture
def make(hf: Holdfast, row: Task[[int], None]) -> Callable[..., Batch]:
    """Make a batch of this many jobs, none of which has ended."""

    def made(jobs: int, name: str = "import", tenant: str | None = "acme") -> Batch:
        with hf.batch(name, tenant=tenant) as batch:
            row.using(batch=batch).enqueue_many(range(jobs))
        return batch

    return made


Make = Callable[..., Batch]


def end(sql: Sql, jobs: int, error: dict[str, str] | None = None) -> None:
    """End jobs as a worker would: with success, or as dead."""
    outcome = {"outcome": "dead", "error": error} if error else {"outcome": "succeeded"}
    held = sql("SELECT id::text, token FROM claim('me', p_limit => %s)", [jobs])
    results = [{"id": id_, "token": token, **outcome} for id_, token in held]
    sql("SELECT finish('{}', '{}', %s::jsonb)", [json.dumps(results)])
    sql("SELECT complete_batches()")


def test_batches_are_listed_the_newest_first(dsn: str, hf: Holdfast, make: Make, sql: Sql) -> None:
    first = make(8)
    end(sql, 5)
    second = make(0, "nothing", None)
    listed = as_json(holdfast(dsn, "batches", "--json"))
    assert [(b["id"], b["status"], b["total"], b["processed"]) for b in listed] == [
        (second.id, "succeeded", 0, 0),
        (first.id, "running", 8, 5),
    ]
    header, one, two = holdfast(dsn, "batches").stdout.splitlines()
    assert header.split() == [
        "id",
        "status",
        "progress",
        "name",
        "tenant",
        "total",
        "processed",
        "failed",
        "canceled",
        "created",
        "took",
    ]
    assert one.startswith(f"{second.id}  succeeded  [##########] 100 %  nothing  ")
    assert two.startswith(f"{first.id}  running    [######....]  62 %  import   acme        8          5       0  ")
    assert "newest 1" in holdfast(dsn, "batches", "--limit", "1").stderr
    assert [batch.id for batch in hf.batches.list(1)] == [second.id]


def test_a_narrow_terminal_gets_two_lines_for_each_batch(dsn: str, make: Make, sql: Sql) -> None:
    batch = make(1000)
    end(sql, 1, {"type": "ValueError"})
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "batches", COLUMNS="80", FORCE_COLOR="1").stdout)
    first, second = shown.splitlines()
    assert first == f"{batch.id}  running  [..........]   0 %  import"
    assert second.startswith("    tenant acme  total 1,000  processed 1  failed 1  created ")


def test_an_empty_list_of_batches_says_so(dsn: str) -> None:
    assert holdfast(dsn, "batches").stdout.startswith("no batches; make one with")


def test_show_prints_everything_and_why_jobs_failed(dsn: str, make: Make, sql: Sql) -> None:
    batch = make(7)
    end(sql, 6, {"type": "app.Refused", "message": "no \x1b[31mentry"})
    result = holdfast(dsn, "batches", "show", batch.id)
    for part in (
        f"id           {batch.id}\n",
        "name         import\n",
        "tenant       acme\n",
        "status       running\n",
        "progress     [#########################.....]  85 %\n",
        "total        7\n",
        "processed    6\n",
        "failed       6\n",
        "\nthe last of 6 failed jobs:\n",
    ):
        assert part in result.stdout
    assert result.stdout.count("Refused: no \\x1b[31mentry") == 5
    assert f"holdfast dead retry --all --batch {batch.id}" in result.stderr
    document = as_json(holdfast(dsn, "batches", "show", batch.id, "--json"))
    assert (document["failed"], len(document["last_errors"])) == (6, 5)
    assert document["last_errors"][0]["last_error"]["type"] == "app.Refused"


def test_an_open_batch_says_so(dsn: str, hf: Holdfast) -> None:
    with hf.batch("import") as batch:
        assert "\nopen         yes" in holdfast(dsn, "batches", "show", batch.id).stdout
    assert "\nopen" not in holdfast(dsn, "batches", "show", batch.id).stdout


def test_cancel_says_how_many_jobs_it_canceled(dsn: str, make: Make, sql: Sql) -> None:
    batch, other = make(1500), make(3, "other")
    result = holdfast(dsn, "batches", "cancel", batch.id, other.id, batch.id)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"canceled 1,500 jobs of batch {batch.id}\ncanceled 3 jobs of batch {other.id}\n"
    assert sql("SELECT status, canceled FROM batch_progress ORDER BY id") == [("canceled", 1500), ("canceled", 3)]


def test_cancel_reports_jobs_that_still_run(dsn: str, make: Make, sql: Sql) -> None:
    batch = make(5)
    sql("SELECT claim('me', p_limit => 2)")
    result = holdfast(dsn, "batches", "cancel", batch.id)
    assert (result.exit_code, result.stdout) == (0, f"canceled 5 jobs of batch {batch.id}\n")
    assert "asked to stop, still running: 2 jobs" in result.stderr
    assert as_json(holdfast(dsn, "batches", "cancel", batch.id, "--json")) == {
        batch.id: {"id": batch.id, "outcome": "canceling", "jobs": 0, "running": 2, "status": "running"}
    }


def test_canceling_what_has_ended_changes_nothing_and_what_is_unknown_is_an_error(dsn: str, make: Make) -> None:
    ended = make(0)
    result = holdfast(dsn, "batches", "cancel", ended.id)
    assert (result.exit_code, result.stdout) == (0, f"batch {ended.id} has ended (succeeded): nothing to cancel\n")
    unknown = holdfast(dsn, "batches", "cancel", UNKNOWN, ended.id)
    assert unknown.exit_code == 1
    assert f"there is no batch {UNKNOWN}" in unknown.stderr and "nothing to cancel" in unknown.stdout
    assert holdfast(dsn, "batches", "cancel", "import").exit_code == 2
    for command in ("show", "watch"):
        assert holdfast(dsn, "batches", command, UNKNOWN).exit_code == 1


def test_a_cancel_that_takes_long_shows_how_far_it_is(dsn: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setattr(batches, "SLOW", 60)
    assert holdfast(dsn, "batches", "cancel", make(3).id).stderr == ""
    monkeypatch.setattr(batches, "SLOW", -1)
    assert "canceling import" in holdfast(dsn, "batches", "cancel", make(3).id).stderr


def test_watch_of_a_batch_that_has_ended_prints_how_it_ended(dsn: str, make: Make, sql: Sql) -> None:
    batch = make(3)
    end(sql, 3)
    result = holdfast(dsn, "batches", "watch", batch.id)
    assert result.exit_code == 0
    assert re.fullmatch(r"batch import has succeeded after [\d.]+ m?s: 3 succeeded\n", result.stdout)
    batch = make(3)
    end(sql, 2)
    end(sql, 1, {"type": "ValueError"})
    result = holdfast(dsn, "batches", "watch", batch.id)
    assert result.exit_code == 1
    assert result.stdout.endswith(": 2 succeeded, 1 failed\n") and "holdfast batches show" in result.stderr
    batch = make(3)
    batch.cancel()
    result = holdfast(dsn, "batches", "watch", batch.id, "--json")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (1, "canceled")


def test_watch_follows_a_batch_to_its_end(dsn: str, make: Make, sql: Sql, tmp_path: Path) -> None:
    batch = make(4)
    with started(dsn, "batches", "watch", batch.id, folder=tmp_path, FORCE_COLOR="1") as program:
        wait_until(lambda: "0 of 4" in program.output)
        end(sql, 3)
        wait_until(lambda: "3 of 4" in program.output)
        assert program.process.poll() is None
        end(sql, 1)
        assert program.ended() == 0
        assert "batch import has succeeded after" in program.output


def test_no_time_is_left_when_every_job_has_ended(make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "KNOWN_AFTER", -1)
    batch, time_left, lines = make(4), follow.TimeLeft(), []
    for jobs in (1, 2, 1):
        end(sql, jobs)
        info = batch.info()
        assert info is not None
        lines.append(time_left.estimate(info.processed, info.total) is not None)
    assert lines == [False, True, False]


def test_ctrl_c_ends_the_watching_and_leaves_the_batch_alone(dsn: str, make: Make, tmp_path: Path) -> None:
    batch = make(4)
    with started(dsn, "batches", "watch", batch.id, folder=tmp_path) as program:
        wait_until(lambda: "0 of 4" in program.output)
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 130
        assert f"no longer watching; batch {batch.id} continues" in program.output
    info = batch.info()
    assert info is not None and (info.status, info.canceled) == ("queued", 0)
