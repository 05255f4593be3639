"""Actions on jobs: `holdfast jobs retry` and its like, `holdfast actions`, `holdfast audit`."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.job import ids
from tests.conftest import wait_until
from tests.support import sql_core as core
from tests.support.program import as_json, holdfast, started

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def jobs(hf: Holdfast) -> list[str]:
    """Enqueue three jobs for acme and one for bree."""
    return [hf.jobs.enqueue("app.send", b'{"order": 1}', tenant=each).id for each in ("acme", "acme", "acme", "bree")]


def test_what_a_filter_matches_is_shown_before_the_question(dsn: str, jobs: list[str], sql: Sql) -> None:
    result = holdfast(dsn, "jobs", "cancel", "--tenant", "acme", stdin="n\n")
    assert result.exit_code == 1 and "cancel 3 jobs?" in result.stderr
    assert all(id_ in result.stderr for id_ in jobs[:3]) and jobs[3] not in result.stderr
    assert sql("select count(*) from live") == [(4,)]
    assert holdfast(dsn, "jobs", "cancel", "--tenant", "acme", stdin="y\n").stdout.endswith("canceled 3 jobs\n")
    assert core.firsts(sql("select id::text from live")) == jobs[3:]


def test_without_a_terminal_the_question_is_refused(dsn: str, jobs: list[str], sql: Sql) -> None:
    result = holdfast(dsn, "jobs", "cancel", "--tenant", "acme")
    assert result.exit_code == 1 and "without a terminal, pass --yes" in result.stderr
    assert sql("select count(*) from live") == [(4,)]


def test_more_than_ten_jobs_are_counted_not_listed(dsn: str, sql: Sql) -> None:
    for _ in range(12):
        core.put(sql)
    result = holdfast(dsn, "jobs", "move", "--queue", "default", "--to", "mail", stdin="n\n")
    assert "and 2 more" in result.stderr and "move 12 jobs?" in result.stderr


def test_waiting_jobs_get_a_priority_a_queue_and_a_time(dsn: str, jobs: list[str], sql: Sql) -> None:
    def done(*arguments: str) -> int:
        return int(as_json(holdfast(dsn, "jobs", *arguments, "--yes", "--json"))["changed"])

    assert done("prioritize", "--tenant", "acme", "--to", "0") == 3
    assert done("move", "--args", '{"order": 1}', "--tenant", "bree", "--to", "mail") == 1
    assert done("reschedule", "--task", "app.send", "--to", "2h") == 4
    assert sql("select queue, priority, count(*) from later group by 1, 2 order by 3") == [
        ("mail", 2, 1),
        ("default", 0, 3),
    ]
    assert 7100 < float(sql("select min(extract(epoch from run_at - clock())) from later")[0][0]) <= 7200
    assert done("reschedule", jobs[0], "--to", "now") == 1
    assert core.firsts(sql("select id::text from live")) == jobs[:1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["cancel"], "--task NAME or --status queued"),
        (["retry"], "--task NAME or --all"),
        (["retry", "--all", ids.make()], "not both"),
        (["cancel", ids.make(), "--queue", "mail"], "not both"),
        (["cancel", "--args", "{order: 1}"], "is not JSON"),
        (["cancel", "--status", "dead", "-y"], "cancel changes jobs that are queued"),
        (["cancel", "--since", "yesterday"], "--since must be a time"),
        (["reschedule", "--task", "t", "--to", "soon"], "--to must be a time"),
    ],
)
def test_what_nobody_can_mean_is_refused(dsn: str, jobs: list[str], sql: Sql, arguments: list[str], why: str) -> None:
    result = holdfast(dsn, "jobs", *arguments)
    assert result.exit_code == 2 and why in result.stderr, result.stderr
    assert sql("select count(*) from actions") == [(0,)]


def test_times_choose_jobs_by_their_creation(dsn: str, jobs: list[str], sql: Sql) -> None:
    sql("update live set created_at = created_at - interval '2 h' where id = %s", [jobs[0]])
    assert [job["id"] for job in as_json(holdfast(dsn, "jobs", "--until", "1h", "--json"))] == jobs[:1]
    assert len(as_json(holdfast(dsn, "jobs", "--since", "1h", "--json"))) == 3
    assert as_json(holdfast(dsn, "jobs", "cancel", "--until", "1h", "--yes", "--json"))["changed"] == 1


def test_an_action_is_listed_shown_and_aborted(dsn: str, jobs: list[str], hf: Holdfast, sql: Sql) -> None:
    holdfast(dsn, "pause", "queue:mail")  # audited, but no action on jobs
    options = ("--by", "ann", "--reason", "closed")
    holdfast(dsn, "jobs", "cancel", "--tenant", "acme", "--yes", *options)
    (action,) = as_json(holdfast(dsn, "actions", "--json"))
    assert (action["kind"], action["by"], action["reason"], action["state"]) == ("cancel", "ann", "closed", "done")
    assert re.search(r"cancel +done +3 +0 +3 .* ann +tenant acme +closed", holdfast(dsn, "actions").stdout)
    assert as_json(holdfast(dsn, "actions", "show", action["id"], "--json")) == action
    assert re.search('filter +{"tenant":"acme"}', holdfast(dsn, "actions", "show", action["id"]).stdout)
    assert as_json(holdfast(dsn, "actions", "--running", "--json")) == []
    late = holdfast(dsn, "actions", "abort", action["id"])
    assert (late.exit_code, late.stdout) == (1, f"it had ended (done): action {action['id']} canceled 3 jobs\n")
    sql("select start_action('cancel', '{\"tenant\": \"bree\"}')")
    (running,) = hf.actions.list(state="running")
    assert f"aborted: action {running.id} canceled 0 jobs" in holdfast(dsn, "actions", "abort", running.id).stdout
    watched = holdfast(dsn, "actions", "watch", running.id)
    assert (watched.exit_code, watched.stdout) == (1, f"action {running.id} is aborted: canceled 0 jobs\n")
    unknown = holdfast(dsn, "actions", "show", ids.make())
    assert unknown.exit_code == 2 and "there is no action" in unknown.stderr


def test_an_action_that_is_left_to_the_workers_can_be_watched(dsn: str, sql: Sql) -> None:
    sql("select start_action('cancel', '{\"queue\": \"default\"}')")
    core.put(sql)
    left = holdfast(dsn, "jobs", "cancel", "--queue", "default", "--yes", "--no-wait", "--json")
    assert as_json(left)["kind"] == "cancel"
    for each in as_json(holdfast(dsn, "actions", "--json")):
        assert as_json(holdfast(dsn, "actions", "watch", each["id"], "--json"))["state"] == "done"


def test_ctrl_c_leaves_the_action_running_and_says_how_to_go_on(dsn: str, sql: Sql, tmp_path: Path) -> None:
    id_ = core.put(sql)
    ((action,),) = sql("select start_action('cancel', '{\"queue\": \"default\"}')::text")
    with core.session(dsn, autocommit=False) as holder:  # keeps the action from its end
        holder.execute("select from live where id = %s for update", [id_])
        with started(dsn, "actions", "watch", str(action), folder=tmp_path) as program:
            wait_until(lambda: "of 1" in program.output)
            program.process.send_signal(signal.SIGINT)
            assert program.ended() == 130
            assert f"action {action} continues\nto watch it: holdfast actions watch {action}" in program.output
            assert f"holdfast actions abort {action}" in program.output


def test_the_log_shows_who_changed_what_and_the_values_before(dsn: str, jobs: list[str]) -> None:
    holdfast(dsn, "limits", "set", "tenant:acme", "--concurrency", "4", "--by", "ann")
    holdfast(dsn, "limits", "set", "tenant:acme", "--concurrency", "8", "--by", "bob")
    holdfast(dsn, "jobs", "cancel", "--tenant", "acme", "--yes", "--by", "ann")
    last, second, first = holdfast(dsn, "audit").stdout.splitlines()[1:]
    assert re.search("ann +cancel +tenant acme +3 jobs", last)
    assert re.search("bob +limits.set +tenant:acme +concurrency 4 -> 8", second)
    assert re.search("ann +limits.set +tenant:acme", first)
    by = as_json(holdfast(dsn, "audit", "--by", "ann", "--kind", "limits.set", "--json"))
    assert [each["params"] for each in by] == [{"concurrency": 4}]
    assert len(as_json(holdfast(dsn, "audit", "--target", "tenant:acme", "--json"))) == 2
    page = holdfast(dsn, "audit", "--limit", "1")
    before = page.stderr.split("--before ")[1].strip()
    assert "bob" in holdfast(dsn, "audit", "--limit", "1", "--before", before).stdout


def test_the_log_of_a_limit_names_only_what_was_changed(dsn: str) -> None:
    for change in (["--rate", "1", "--per", "600", "--burst", "5"], ["--rate", "2"]):
        holdfast(dsn, "limits", "set", "tenant:acme", *change)
    holdfast(dsn, "limits", "clear", "tenant:acme", "--only", "burst")
    holdfast(dsn, "limits", "clear", "tenant:acme")
    shown = [" ".join(each.split()) for each in holdfast(dsn, "audit").stdout.splitlines()[1:]]
    assert [each.partition(" tenant:acme ")[2] for each in shown] == [
        "per 600.0 -> as in code, rate 2.0 -> as in code, burst 1 -> as in code",
        "burst 5.0 -> as in code",
        "rate 1.0 -> 2.0",
        "per as in code -> 600.0, rate as in code -> 1.0, burst as in code -> 5.0",
    ]


def test_a_dead_job_is_edited_and_retried(dsn: str, hf: Holdfast, sql: Sql) -> None:
    id_ = hf.jobs.enqueue("app.send", b'{"to": "x", "n": 1}').id
    sql("select fail(id, token, '{}', null, 'dead') from claim('w')")
    assert holdfast(dsn, "jobs", "edit", id_, "--args", '{"to": "y"}').stdout == f"retried job {id_}\n"
    assert as_json(holdfast(dsn, "jobs", "show", id_, "--json"))["payload"] == {"to": "y", "n": 1}
    (change,) = as_json(holdfast(dsn, "audit", "--target", id_, "--json"))
    assert change["before"] == {"args": {"to": "x", "n": 1}}


def test_jobs_are_found_by_their_arguments_page_by_page(dsn: str, jobs: list[str]) -> None:
    first = holdfast(dsn, "jobs", "--args", '{"order": 1}', "--tenant", "acme", "--limit", "2", "--json")
    assert [job["id"] for job in as_json(first)] == [jobs[2], jobs[1]]
    page = re.search(r"--before (\S+)", first.stderr)
    assert page
    rest = holdfast(dsn, "jobs", "--args", '{"order": 1}', "--tenant", "acme", "--before", page[1], "--json")
    assert [job["id"] for job in as_json(rest)] == [jobs[0]]
    assert as_json(holdfast(dsn, "jobs", "--args", '{"order": 2}', "--json")) == []


def test_who_and_why_are_recorded_for_every_change(dsn: str) -> None:
    author = ("--by", "ann", "--reason", "a test")
    holdfast(dsn, "pause", "queue:mail", *author)
    holdfast(dsn, "resume", "queue:mail", *author)
    holdfast(dsn, "limits", "set", "tenant:acme", "--concurrency", "4", *author)
    holdfast(dsn, "limits", "clear", "tenant:acme", *author)
    holdfast(dsn, "tokens", "create", "web", "--tenant", "acme", "--scopes", "jobs:read", *author)
    log = as_json(holdfast(dsn, "audit", "--json"))
    assert {(each["by"], each["reason"]) for each in log} == {("ann", "a test")} and len(log) == 5
