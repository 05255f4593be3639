"""`holdfast why` and `drain`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Reason, UsageError, Why
from tests.conftest import wait_until
from tests.support.program import as_json, holdfast, ran, started

Sql = Callable[..., list[tuple[Any, ...]]]
UNKNOWN = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


def put(sql: Sql, queue: str = "default", **options: Any) -> str:
    named = "".join(f", p_{name} => %s" for name in options)
    ((id_,),) = sql(f"select id::text from enqueue('t', p_queue => %s{named})", [queue, *options.values()])
    return str(id_)


def serve(sql: Sql, queue: str = "default") -> None:
    sql(
        "select register_worker('w', 'h', 1, '1', %s, 4, "
        """'[{"name": "t", "queue": "default", "max_attempts": 5, "retry": {}}]')""",
        [[queue]],
    )


def end(sql: Sql, queue: str = "default", jobs: int = 1) -> None:
    """End jobs as a worker would."""
    held = sql("select id, token from claim('w', %s, %s)", [[queue], jobs])
    sql("select finish(%s, %s)", [[id_ for id_, _ in held], [token for _, token in held]])


# -- why


def test_one_sentence_and_then_the_details(dsn: str, sql: Sql) -> None:
    serve(sql)
    put(sql)
    id_ = put(sql, tenant="acme")
    sql("select lock_ring(), fold_arrivals('default', next_token())")  # as the next claim does
    sql("select pause('tenant:acme', 'ann', 'unpaid')")
    lines = holdfast(dsn, "why", id_).stdout.splitlines()
    assert re.fullmatch(
        r"queued: tenant:acme was paused \S+ \w+ ago by ann \(unpaid\), until it is resumed", lines[0]
    ), lines[0]
    assert "1. paused  tenant:acme was paused" in "\n".join(lines)
    assert "   by               ann" in lines


def test_each_reason_ends_with_the_command_that_removes_it(dsn: str, sql: Sql) -> None:
    def remedies(id_: str) -> list[str]:
        return [line.strip() for line in holdfast(dsn, "why", id_).stdout.splitlines() if line.startswith("   -> ")]

    late, queue = put(sql, delay="1 h"), "night ly"
    assert remedies(late)[1] == f"-> holdfast jobs reschedule {late} --to now"
    waits = put(sql, queue, tenant="acme", keys=["domain:a"])
    sql("select pause('tenant:acme'), set_limit('domain:a', '{\"concurrency\": 0}')")
    assert remedies(waits) == [
        "-> holdfast resume tenant:acme",
        "-> holdfast limits clear domain:a --only concurrency",
        "-> holdfast worker MODULE:APP --queues 'night ly'",
    ]
    holder = put(sql, tenant="other", keys=["domain:b"])
    sql("select claim('w', '{default}', 1)")
    sql("select set_limit('domain:b', '{\"concurrency\": 1}')")
    full = put(sql, tenant="other", keys=["domain:b"])
    assert remedies(full)[1:] == [
        "-> holdfast limits set domain:b --concurrency N",
        f"-> holdfast jobs cancel {holder}",
    ]


def test_what_is_counted_in_full_is_not_said_to_be(dsn: str, sql: Sql) -> None:
    serve(sql)
    put(sql)
    shown = holdfast(dsn, "why", put(sql)).stdout
    assert "1 job of the same queue is before it" in shown and "more " not in shown


async def test_the_same_as_json_and_from_python(dsn: str, hf: Holdfast, sql: Sql) -> None:
    id_ = put(sql)
    document = as_json(holdfast(dsn, "why", id_, "--json"))
    assert document["sentence"] == "no live worker serves queue default"
    assert document["reasons"] == [{"kind": "no_worker", "text": document["sentence"], "facts": {"queue": "default"}}]
    expected = Why(id_, "queued", document["sentence"], [Reason(**document["reasons"][0])], [])
    assert (hf.jobs.why(id_), await hf.jobs.awhy(id_)) == (expected, expected)
    await hf.aclose()


def test_an_unknown_job_is_exit_code_1_and_an_invalid_id_2(dsn: str, hf: Holdfast) -> None:
    result = holdfast(dsn, "why", UNKNOWN)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        1,
        f"job {UNKNOWN}: there is no such job: it was never accepted, or history has dropped it since",
    )
    assert holdfast(dsn, "why", UNKNOWN, "--json").exit_code == 1
    assert hf.jobs.why(UNKNOWN).status is None
    assert holdfast(dsn, "why", "mail").exit_code == 2
    with pytest.raises(UsageError, match="is not an id"):
        hf.jobs.why("mail")


def test_lines_are_wrapped_where_a_terminal_is_narrow_and_a_worker_is_named_once(dsn: str, sql: Sql) -> None:
    put(sql)
    sql("select claim('worker-17-ab', p_limit => 1)")
    sql("select set_limit('domain:x', '{\"concurrency\": 1}')")
    id_ = put(sql, "mail")
    sql("update live set keys = '{domain:x}', lane = lane_of(null, '{domain:x}')")
    sql("insert into limits (key, running) values ('domain:x', 1)")
    whole = holdfast(dsn, "why", id_).stdout
    assert "worker worker-" not in whole and "  worker-17-ab  " in whole
    shown = re.sub(r"\x1b\[[\d;]*m", "", ran(dsn, "why", id_, COLUMNS="60", FORCE_COLOR="1").stdout)
    assert max(map(len, shown.splitlines())) <= 60
    assert "runs 1 of 1" in " ".join(shown.split())


def test_text_of_a_job_cannot_harm_the_terminal(dsn: str, sql: Sql) -> None:
    put(sql)
    sql("select pause('queue:default', p_reason => %s)", ["\x1b[2J[red]"])
    shown = holdfast(dsn, "why", put(sql)).stdout
    assert "\x1b" not in shown and "\\x1b[2J[red]" in shown


# -- drain


def test_a_queue_with_nothing_in_it_is_drained(dsn: str, sql: Sql) -> None:
    serve(sql, "mail")
    put(sql)
    assert re.fullmatch(r"queue mail is drained: 0 jobs ended in \S+ m?s\n", holdfast(dsn, "drain", "mail").stdout)


def test_an_unknown_queue_is_exit_code_2_and_not_drained(dsn: str, sql: Sql) -> None:
    assert holdfast(dsn, "drain", "mail").exit_code == 2
    serve(sql, "visits")
    result = holdfast(dsn, "drain", "queue:vists")
    assert (result.exit_code, result.stdout) == (2, "")
    words = "unknown queue vists: it has no jobs, no worker and no task; did you mean 'visits'?"
    assert words in result.stderr
    assert "; known: default, visits" in holdfast(dsn, "drain", "other").stderr
    assert "queue visits is drained" in holdfast(dsn, "drain", "queue:visits").stdout
    put(sql, "later", delay="1 h")
    assert holdfast(dsn, "drain", "later").exit_code == 0


def test_it_waits_for_what_was_there_and_for_nothing_else(dsn: str, sql: Sql, tmp_path: Path) -> None:
    serve(sql, "mail")
    for _ in range(3):
        put(sql, "mail")
    put(sql, "mail", delay="1 h")
    put(sql)
    with started(dsn, "drain", "mail", folder=tmp_path) as program:
        wait_until(lambda: "0 of 3" in program.output)
        put(sql, "mail")
        end(sql, "mail", 2)
        ((id_, token),) = sql("select id, token from claim('w', '{mail}', 1)")
        sql("select fail(%s, %s, p_delay => '1 s')", [id_, token])
        assert program.process.poll() is None
        wait_until(lambda: sql("select promote()")[0][0] == [id_])
        assert program.process.poll() is None, "a retry of what was there counts"
        sql("select cancel(%s)", [[id_]])
        assert program.ended() == 0
        assert "queue mail is drained: 3 jobs ended in" in program.output
        assert "not waited for: 1 delayed job; --later waits for them too" in program.output
    assert sql("select count(*) from live where queue = 'mail'") == [(1,)]


def test_when_time_is_up_it_reports_what_is_left(dsn: str, sql: Sql) -> None:
    serve(sql)
    first = put(sql)
    put(sql)
    put(sql, delay="1 h")
    sql("select claim('w', p_limit => 1)")
    result = holdfast(dsn, "drain", "default", "--timeout", "0.5s")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"after \S+ m?s, 2 of 2 jobs left: 1 wait, 1 run \(1 delayed not counted; --later\)\n", result.stdout
    ), result.stdout
    assert "see what holds one up: holdfast why " in result.stderr
    result = holdfast(dsn, "drain", "default", "--timeout", "0", "--later", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["outcome"] == "timed out" and document["ids"][1] == first
    assert {name: document[name] for name in ("jobs", "left", "waiting", "running", "retrying", "delayed")} == {
        "jobs": 3,
        "left": 3,
        "waiting": 1,
        "running": 1,
        "retrying": 0,
        "delayed": 1,
    }


def test_what_would_let_it_wait_for_ever_is_reported_first(dsn: str, sql: Sql) -> None:
    put(sql, "mail")
    sql("select pause('queue:mail')")
    output = holdfast(dsn, "drain", "mail", "--timeout", "0").stderr
    assert "warning: queue:mail is paused; to continue: holdfast resume queue:mail" in output
    assert "warning: no live worker serves queue mail" in output


def test_ctrl_c_leaves_the_queue_alone(dsn: str, sql: Sql, tmp_path: Path) -> None:
    put(sql)
    with started(dsn, "drain", "default", folder=tmp_path) as program:
        wait_until(lambda: "0 of 1" in program.output)
        program.process.send_signal(signal.SIGINT)
        assert program.ended() == 130
        assert "no longer watching; queue default continues" in program.output
    assert sql("select count(*) from live") == [(1,)]
