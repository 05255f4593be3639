"""`holdfast outbox`: list, show, retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from tests.support.program import as_json, holdfast

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def die(hf: Holdfast, sql: Sql) -> Callable[..., str]:
    """Emit a message, let it end and return its id."""

    def make(key: str, channel: str = "email", tenant: str | None = None, outcome: str = "dead") -> str:
        emitted = hf.outbox.emit(None, channel, {"to": "a@b.c"}, key=key, tenant=tenant)
        error = '{"type": "Refused", "message": "no entry", "code": "NO", "traceback": "Traceback\\n  x"}'
        sql("select fail(id, token, %s::jsonb, null, %s) from claim('w', '{outbox}', 1)", [error, outcome])
        return emitted.id

    return make


def test_the_list_shows_messages_and_can_be_narrowed(hf: Holdfast, dsn: str, die: Callable[..., str]) -> None:
    dead = die("invoice-1", tenant="acme")
    waiting = hf.outbox.emit(None, "sms", "hello", key="k", order="o").id
    listed = as_json(holdfast(dsn, "outbox", "--json"))
    assert {it["id"]: (it["status"], it["channel"], it["idempotency_key"]) for it in listed} == {
        dead: ("dead", "email", "email/acme/invoice-1"),
        waiting: ("pending", "sms", "sms//k"),
    }
    for option, value in (("--channel", "sms"), ("--status", "pending"), ("--key", "k"), ("--order", "o")):
        assert [it["id"] for it in as_json(holdfast(dsn, "outbox", "--json", option, value))] == [waiting]
    assert [it["id"] for it in as_json(holdfast(dsn, "outbox", "--json", "--tenant", "acme"))] == [dead]
    result = holdfast(dsn, "outbox")
    assert "Refused: no entry" in result.stdout
    assert "invoice-1" in result.stdout
    assert "no messages match" in holdfast(dsn, "outbox", "--channel", "none").output
    assert "newest 1" in holdfast(dsn, "outbox", "--limit", "1").stderr


@pytest.mark.parametrize("by", ["id", "idempotency key", "key"])
def test_one_message_is_shown_by_id_or_key(dsn: str, die: Callable[..., str], by: str) -> None:
    id_ = die("invoice/1", tenant="acme")
    name = {"id": id_, "idempotency key": "email/acme/invoice/1", "key": "invoice/1"}[by]
    assert as_json(holdfast(dsn, "outbox", "show", name, "--json"))["id"] == id_
    shown = holdfast(dsn, "outbox", "show", name).stdout
    for part in (id_, "dead", "email/acme/invoice/1", "1 of 10", "a@b.c", "Refused: no entry", "Traceback"):
        assert part in shown


def test_a_key_that_several_have_must_be_named_in_full(hf: Holdfast, dsn: str) -> None:
    hf.outbox.emit(None, "email", 1, key="k")
    hf.outbox.emit(None, "sms", 1, key="k", tenant="acme")
    result = holdfast(dsn, "outbox", "show", "k")
    assert result.exit_code == 2
    assert "sms/acme/k, email//k" in result.stderr
    missing = holdfast(dsn, "outbox", "show", "nothing")
    assert (missing.exit_code, "there is no message 'nothing'" in missing.stderr) == (1, True)


def test_dead_messages_are_retried_by_id(hf: Holdfast, dsn: str, die: Callable[..., str]) -> None:
    one, two = die("1"), die("2", outcome="failed")
    assert "retried 1 job" in holdfast(dsn, "outbox", "retry", one).stdout
    assert as_json(holdfast(dsn, "outbox", "retry", two, "--json"))["changed"] == 1
    again = holdfast(dsn, "outbox", "retry", one)
    assert (again.exit_code, "skipped 1 job:" in again.stderr) == (1, True)
    assert {it.status for it in hf.outbox.list()} == {"pending"}


def test_a_retry_of_what_is_no_message_says_so(hf: Holdfast, dsn: str, sql: Sql, die: Callable[..., str]) -> None:
    sql("select enqueue('task')")
    sql("select fail(id, token, '{}', null, 'dead') from claim('w')")
    ((job,),) = sql("select id::text from dead")
    result = holdfast(dsn, "outbox", "retry", job, die("1"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"there is no message {job}" in " ".join(result.stderr.split())
    assert (job,) in sql("select id::text from dead")


def test_whether_it_may_have_been_sent_is_shown(hf: Holdfast, dsn: str, sql: Sql, die: Callable[..., str]) -> None:
    def maybe_sent(id_: str) -> tuple[bool, bool]:
        it = as_json(holdfast(dsn, "outbox", "show", id_, "--json"))
        return it["maybe_sent"], "maybe sent" in holdfast(dsn, "outbox", "show", id_).stdout

    id_ = hf.outbox.emit(None, "email", {}, key="1").id
    assert maybe_sent(id_) == (False, True)
    sql("select claim('w', '{outbox}', 1)")
    assert maybe_sent(id_) == (False, True)
    sql("select finish(array_agg(id), array_agg(token)) from live")
    assert maybe_sent(id_) == (False, False)
    dead = die("2")
    assert maybe_sent(dead) == (True, True)
    holdfast(dsn, "outbox", "retry", dead)
    assert hf.outbox.get(dead).attempts == 0  # type: ignore[union-attr]
    assert maybe_sent(dead) == (True, True)


def test_all_that_match_are_retried_after_a_question(hf: Holdfast, dsn: str, die: Callable[..., str]) -> None:
    die("1"), die("2", "sms"), die("3", tenant="acme")
    assert holdfast(dsn, "outbox", "retry", "--all", stdin="n").exit_code == 1
    assert {it.status for it in hf.outbox.list()} == {"dead"}
    assert as_json(holdfast(dsn, "outbox", "retry", "--all", "--channel", "sms", "--yes", "--json"))["changed"] == 1
    assert as_json(holdfast(dsn, "outbox", "retry", "--all", "--tenant", "acme", "-y", "--json"))["changed"] == 1
    assert "retried 1 job" in holdfast(dsn, "outbox", "retry", "--all", stdin="y").stdout
    assert "no jobs match" in holdfast(dsn, "outbox", "retry", "--all").stdout


@pytest.mark.parametrize("arguments", [[], ["--all", "x"], ["x", "--channel", "email"]])
def test_which_messages_to_retry_must_be_clear(dsn: str, arguments: list[str]) -> None:
    assert holdfast(dsn, "outbox", "retry", *arguments).exit_code == 2


def test_other_dead_jobs_are_left_alone(dsn: str, sql: Sql) -> None:
    sql("select enqueue('channels')")
    sql("select fail(id, token, '{}', null, 'dead') from claim('w')")
    assert as_json(holdfast(dsn, "outbox", "retry", "--all", "--yes", "--json"))["changed"] == 0
    assert as_json(holdfast(dsn, "outbox", "--json")) == []
