"""`holdfast jobs`: list, show, cancel, enqueue, queues, workers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import render
from tests.support.program import as_json, holdfast, ran

Sql = Callable[..., list[tuple[Any, ...]]]


def enqueue(dsn: str, *arguments: str) -> str:
    return str(as_json(holdfast(dsn, "jobs", "enqueue", *arguments, "--json"))["id"])


def test_jobs_lists_the_newest_first_and_filters(dsn: str) -> None:
    first = enqueue(dsn, "app.send", '{"to": "a@b.c"}', "--tenant", "acme")
    second = enqueue(dsn, "app.pack", "--queue", "parcels")
    assert [job["id"] for job in as_json(holdfast(dsn, "jobs", "--json"))] == [second, first]
    assert [job["id"] for job in as_json(holdfast(dsn, "jobs", "--json", "--limit", "1"))] == [second]
    for option, value, found in (
        ("--task", "app.send", first),
        ("--queue", "parcels", second),
        ("--tenant", "acme", first),
    ):
        assert [job["id"] for job in as_json(holdfast(dsn, "jobs", "--json", option, value))] == [found]
    assert as_json(holdfast(dsn, "jobs", "--json", "--status", "running")) == []


def test_a_listed_job_as_json_has_every_field(dsn: str) -> None:
    id_ = enqueue(dsn, "app.send", '{"to": "a@b.c"}', "--tenant", "acme", "--priority", "1")
    (job,) = as_json(holdfast(dsn, "jobs", "--json"))
    assert {k: job[k] for k in ("id", "task", "tenant", "queue", "priority", "payload", "status", "attempts")} == {
        "id": id_,
        "task": "app.send",
        "tenant": "acme",
        "queue": "default",
        "priority": 1,
        "payload": {"to": "a@b.c"},
        "status": "queued",
        "attempts": 0,
    }
    assert {"run_at", "created_at", "started_at", "finished_at", "last_error", "result", "locked_by"} <= set(job)


def test_the_table_shows_whole_ids_in_a_pipe_and_no_colour_codes(dsn: str) -> None:
    id_ = enqueue(dsn, "app.a_task_with_quite_a_long_name_that_would_not_fit_into_eighty_columns", "--tenant", "acme")
    result = ran(dsn, "jobs")
    assert result.returncode == 0
    header, line = result.stdout.splitlines()
    assert header.split()[:3] == ["id", "status", "task"]
    assert line.startswith(f"{id_}  queued  app.a_task_with_quite_a_long_name_that_would_not_fit_into_eighty_columns")
    assert "\x1b" not in result.stdout


def test_the_table_shows_when_a_delayed_job_is_due(dsn: str) -> None:
    enqueue(dsn, "app.send")
    assert "due" not in holdfast(dsn, "jobs").stdout, "where no job is delayed"
    late = enqueue(dsn, "app.send", "--delay", "3600")
    header, delayed, plain = holdfast(dsn, "jobs").stdout.splitlines()
    assert header.split()[-4:-1] == ["created", "due", "last"]
    (job,) = [each for each in as_json(holdfast(dsn, "jobs", "--json")) if each["id"] == late]
    due = render.when(datetime.fromisoformat(job["run_at"]))
    assert delayed.rstrip().endswith(due) and due not in plain


def test_an_empty_list_of_jobs_says_so(dsn: str) -> None:
    assert holdfast(dsn, "jobs").stdout == "no jobs match\n"
    assert holdfast(dsn, "jobs", "queues").stdout == "no jobs wait, run or are dead, and no queue is paused\n"


def test_a_queue_that_is_not_known_gets_a_suggestion(dsn: str, sql: Sql) -> None:
    enqueue(dsn, "app.send", "--queue", "crawl")
    for command in (
        ["jobs", "--queue", "crwl"],
        ["dead", "--queue", "crwl"],
        ["jobs", "enqueue", "t", "--queue", "crwl"],
    ):
        assert "warning: unknown queue crwl; did you mean 'crawl'?" in holdfast(dsn, *command).stderr
    for command in (["jobs", "--queue", "crawl"], ["dead", "--queue", "crawl"], ["jobs"]):
        assert "warning" not in holdfast(dsn, *command).stderr


def test_show_prints_how_long_a_job_waited_and_took(dsn: str, sql: Sql) -> None:
    id_ = enqueue(dsn, "app.send", "--priority", "1")
    ((token,),) = sql("select token from claim('w')")
    sql("select finish(array[%s::uuid], array[%s::bigint])", [id_, token])
    sql("update history set started_at = finished_at - interval '1.93 s', run_at = finished_at - interval '13.93 s'")
    shown = [line.split(maxsplit=1) for line in holdfast(dsn, "jobs", "show", id_).stdout.splitlines()]
    assert ["waited", "12 s"] in shown and ["took", "1.9 s"] in shown and ["priority", "1 (high)"] in shown


def test_show_prints_everything_and_terminal_codes_in_errors_are_harmless(dsn: str, sql: Sql) -> None:
    id_ = enqueue(dsn, "app.send", '{"to": "a@b.c"}', "--delay", "3600")
    error = {"type": "app.Refused", "message": "no \x1b[31mentry", "code": "E17", "traceback": "Traceback\n  line 7"}
    sql("UPDATE later SET attempt = 1, last_error = %s::jsonb WHERE id = %s", [json.dumps(error), id_])
    shown = holdfast(dsn, "jobs", "show", id_).stdout
    for part in (
        id_,
        "retrying",
        "app.send",
        '{"to":"a@b.c"}',
        "1 of 5",
        "Refused: no \\x1b[31mentry",
        "E17",
        "  line 7",
    ):
        assert part in shown
    assert "\x1b" not in shown
    assert as_json(holdfast(dsn, "jobs", "show", id_, "--json"))["last_error"] == error
    assert [j["id"] for j in as_json(holdfast(dsn, "jobs", "--json", "--error", "E17"))] == [id_]


def test_show_prints_batch_deadline_progress_and_a_process_s_output(dsn: str, hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="app.send")
    def send() -> None: ...

    with hf.batch("import") as batch:
        job = send.using(batch=batch, deadline=600).enqueue()
    ((token,),) = sql("SELECT token FROM claim('me')")
    report = {"id": job.id, "token": token, "done": 420, "total": 1000, "message": "row\n420"}
    sql("SELECT report_progress(%s::jsonb)", [json.dumps([report])])
    shown = holdfast(dsn, "jobs", "show", job.id).stdout
    assert f"batch        {batch.id}\n" in shown and "deadline     20" in shown
    assert "progress     [########............]  42 %  420 of 1,000  row 420\n" in shown
    assert as_json(holdfast(dsn, "jobs", "show", job.id, "--json"))["progress"]["done"] == 420
    sql("SELECT report_progress(%s::jsonb)", [json.dumps([{"id": job.id, "token": token, "done": 0.5}])])
    sql("SELECT fail(%s, %s, %s::jsonb)", [job.id, token, json.dumps({"type": "Crash", "output": "line\n\x1b[2J"})])
    shown = holdfast(dsn, "jobs", "show", job.id).stdout
    assert "progress     0.5\n" in shown
    assert shown.endswith("\noutput of its process:\nline\n\\x1b[2J\n")


def test_jobs_of_one_batch_are_listed(dsn: str, hf: Holdfast) -> None:
    @hf.task(name="app.send")
    def send() -> None: ...

    send.enqueue()
    with hf.batch("import") as batch:
        job = send.using(batch=batch).enqueue()
    assert [j["id"] for j in as_json(holdfast(dsn, "jobs", "--batch", batch.id, "--json"))] == [job.id]
    assert [j.id for j in hf.jobs.list(batch=batch.id)] == [job.id]
    refused = holdfast(dsn, "jobs", "--batch", "import")
    assert refused.exit_code == 2 and "'import' is not a batch id" in refused.stderr


def test_a_narrow_terminal_gets_two_lines_for_each_job(dsn: str) -> None:
    id_ = enqueue(dsn, "app.a_task_with_quite_a_long_name_that_would_not_fit", "--tenant", "acme")
    first, second = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "jobs", COLUMNS="80", FORCE_COLOR="1").stdout).splitlines()
    assert first == f"{id_}  queued  app.a_task_with_quite_a_long_name…"
    assert second.startswith("    tenant acme  queue default  tries 0/5  created ")


def test_enqueue_takes_limits(dsn: str, sql: Sql) -> None:
    enqueue(dsn, "app.send", "--limit", "domain:a.b", "--limit", "net", "--tenant", "acme")
    assert sql("select keys, lane = lane_of('acme', keys) from live") == [(["domain:a.b", "net"], True)]
    refused = holdfast(dsn, "jobs", "enqueue", "app.send", "--limit", "a" * 301)
    assert refused.exit_code == 2 and "1 to 300 characters" in refused.stderr


def test_enqueue_takes_a_deadline(dsn: str, sql: Sql) -> None:
    id_ = enqueue(dsn, "app.send", "--deadline", "600")
    assert sql("SELECT deadline - run_at FROM live WHERE id = %s", [id_])[0][0].total_seconds() == 600
    refused = holdfast(dsn, "jobs", "enqueue", "app.send", "--delay", "60", "--deadline", "30")
    assert refused.exit_code == 2 and "a deadline of 00:00:30 is not after" in refused.stderr
    assert "CONTEXT" not in refused.stderr


def test_canceling_a_job_that_runs_asks_it_to_stop_which_is_no_failure(dsn: str, sql: Sql) -> None:
    id_ = enqueue(dsn, "app.send")
    sql("SELECT claim('me')")
    assert as_json(holdfast(dsn, "jobs", "cancel", id_, "--json")) == {id_: "canceling"}
    assert sql("SELECT id::text FROM cancels") == [(id_,)]


def test_cancel_says_what_became_of_each_job(dsn: str, sql: Sql) -> None:
    waiting, later = enqueue(dsn, "app.send"), enqueue(dsn, "app.send", "--delay", "60")
    assert as_json(holdfast(dsn, "jobs", "cancel", waiting, later, "--json")) == {
        waiting: "canceled",
        later: "canceled",
    }
    unknown = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"
    result = holdfast(dsn, "jobs", "cancel", waiting, unknown)
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["finished", "unknown"]
    assert sql("SELECT count(*) FROM jobs WHERE status = 'canceled'") == [(2,)]


def test_enqueue_goes_to_the_queue_its_task_is_known_for(dsn: str, hf: Holdfast) -> None:
    @hf.task(name="app.send", queue="mail")
    def send(to: str) -> None: ...

    hf.database.sync_pool.run(
        hf.database.calls.workers.register("w1", "host", 1, "0", ["mail"], 1, hf.registry.describe_tasks())
    )
    result = holdfast(dsn, "jobs", "enqueue", "app.send", '{"to": "x"}', "--json")
    assert as_json(result)["queue"] == "mail"
    assert result.stderr == ""
    mistyped = holdfast(dsn, "jobs", "enqueue", "app.sned", "--json")
    assert as_json(mistyped)["queue"] == "default"
    assert "did you mean 'app.send'?" in mistyped.stderr


def test_enqueue_keeps_to_the_dedupe_key_as_clients_do(dsn: str, hf: Holdfast) -> None:
    @hf.task(name="app.send")
    def send(to: str) -> None: ...

    job = send.using(dedupe="order-42", tenant="acme").enqueue("x")
    again = as_json(holdfast(dsn, "jobs", "enqueue", "app.send", "--dedupe", "order-42", "--tenant", "acme", "--json"))
    assert again == {"id": job.id, "outcome": "existing", "queue": "default"}
    other = as_json(holdfast(dsn, "jobs", "enqueue", "app.send", "--dedupe", "order-42", "--json"))
    assert other["outcome"] == "created"


def test_enqueue_refuses_a_payload_that_is_not_a_json_object(dsn: str) -> None:
    for text, why in (("{to: 1}", "is not JSON"), ("[1]", "is not a JSON object")):
        result = holdfast(dsn, "jobs", "enqueue", "app.send", text)
        assert result.exit_code == 2
        assert why in result.stderr


def test_queues_prints_how_much_waits_and_for_how_long(dsn: str) -> None:
    enqueue(dsn, "app.send")
    enqueue(dsn, "app.send", "--delay", "60")
    (queue,) = as_json(holdfast(dsn, "jobs", "queues", "--json"))
    assert {k: queue[k] for k in ("queue", "ready", "running", "later", "dead")} == {
        "queue": "default",
        "ready": 1,
        "running": 0,
        "later": 1,
        "dead": 0,
    }
    assert 0 <= queue["oldest_wait"] < 60
    assert holdfast(dsn, "jobs", "queues").stdout.splitlines()[1].split()[:2] == ["default", "1"]


def test_paused_queues_are_shown_though_nothing_is_in_them(dsn: str) -> None:
    holdfast(dsn, "pause", "queue:mail", "--reason", "provider down", "--by", "ann", "--for", "1h")
    (queue,) = as_json(holdfast(dsn, "jobs", "queues", "--json"))
    assert (queue["queue"], queue["ready"], queue["paused"]["reason"]) == ("mail", 0, "provider down")
    assert "by ann: provider down" in holdfast(dsn, "jobs", "queues").stdout


@pytest.mark.parametrize("nasty", ["\x9b2J", "\x7f", "\u202egnp.exe\u2066", "a\u2028b", "\U000e0041"])
def test_json_holds_no_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str], nasty: str) -> None:
    render.emit_json({"error": nasty, "name": "é 漢 🙂"})
    shown = capsys.readouterr().out
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []
    assert json.loads(shown) == {"error": nasty, "name": "é 漢 🙂"} and "é 漢 🙂" in shown


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.02, "20 ms"), (0.4, "0.4 s"), (12, "12 s"), (180, "3 min"), (9000, "2.5 h"), (86_400 * 12_345, "12,345 d")],
)
def test_lengths_of_time_read_as_people_say_them(seconds: float, expected: str) -> None:
    assert render.duration(seconds) == expected
