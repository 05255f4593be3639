"""Tokens of the service: what is stored of them, what they permit, and for how long."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.app import app
from holdfast.errors import UnknownToken, UsageError
from holdfast.model.token import digest
from holdfast.store.tokens import TokenCalls

Sql = Callable[..., list[tuple[Any, ...]]]
CALLS = TokenCalls("holdfast")


def used(hf: Holdfast, token: str) -> Any:
    return hf.database.sync_pool.run(CALLS.use([digest(token)]))[0]


def test_a_token_has_256_random_bits_and_only_its_hash_is_kept(each_hf: Holdfast, each_sql: Sql) -> None:
    token, info = each_hf.tokens.create("web", tenant="acme", scopes=["jobs:read", "jobs:write"])
    other, _ = each_hf.tokens.create("web", tenant="acme", scopes=["jobs:read"])
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", token) and token != other
    assert each_sql("select digest from api_tokens where id = %s", [info.id]) == [
        (hashlib.sha256(token.encode()).digest(),)
    ]
    assert token not in str(each_sql("select t::text from api_tokens t"))
    assert token.startswith(info.shown) and len(info.shown) == 11
    caller = used(each_hf, token)
    assert (caller.id, caller.tenant, caller.scopes) == (info.id, "acme", {"jobs:read", "jobs:write"})
    assert caller.may("jobs:read") and not caller.may("operate") and not caller.everyone
    assert used(each_hf, token + "x") is None


def test_a_revoked_or_expired_token_opens_nothing(hf: Holdfast, sql: Sql) -> None:
    revoked, one = hf.tokens.create("a", tenant="acme", scopes=["jobs:read"])
    expired, two = hf.tokens.create("b", tenant="acme", scopes=["jobs:read"], lifetime=timedelta(days=1))
    assert used(hf, revoked) is not None
    assert 86_000 < used(hf, expired).seconds_left <= 86_400
    assert hf.tokens.revoke(one.id) is True
    assert hf.tokens.revoke(one.id) is False
    sql("update api_tokens set expires_at = clock() where id = %s", [two.id])
    assert (used(hf, revoked), used(hf, expired)) == (None, None)
    with pytest.raises(UnknownToken, match="there is no token 00000000"):
        hf.tokens.revoke("00000000-0000-7000-8000-000000000000")


def test_its_last_use_is_written_at_most_once_a_minute_and_waits_for_no_lock(hf: Holdfast, sql: Sql) -> None:
    token, info = hf.tokens.create("a", tenant="acme", scopes=["jobs:read"])
    assert info.last_used_at is None
    used(hf, token)
    first = hf.tokens.get(info.id).last_used_at
    used(hf, token)
    assert hf.tokens.get(info.id).last_used_at == first is not None
    sql("update api_tokens set last_used_at = last_used_at - interval '61 s'")
    sql("begin")
    sql("select from api_tokens for update")
    done = threading.Event()
    asking = threading.Thread(target=lambda: (used(hf, token), done.set()))
    asking.start()
    assert done.wait(20)  # another session has the row, and it is not waited for
    sql("rollback")
    asking.join()
    used(hf, token)
    assert hf.tokens.get(info.id).last_used_at > first


def test_a_token_with_invalid_values_is_refused(hf: Holdfast, sql: Sql) -> None:
    for scopes in ([], ["jobs:own"], ["operate"], ["admin"], "jobs:read"):
        with pytest.raises(UsageError, match="scope"):
            hf.tokens.create("a", tenant="acme", scopes=scopes)
    for lifetime in (0, -1, float("nan"), 1e12):
        with pytest.raises(UsageError, match="lifetime"):
            hf.tokens.create("a", tenant="acme", scopes=["jobs:read"], lifetime=lifetime)
    with pytest.raises(UsageError, match="name"):
        hf.tokens.create("", tenant=None, scopes=["jobs:read"])
    assert sql("select count(*) from api_tokens") == [(0,)]


def test_one_function_decides_who_sees_a_row_and_denies_in_doubt(sql: Sql) -> None:
    ask = "select may_see(%s, %s::text, %s::text)"
    for everyone, who, tenant, visible in [
        (True, None, "a", True),
        (True, None, None, True),
        (False, "a", "a", True),
        (False, "a", "b", False),
        (False, "a", None, False),
        (False, None, None, False),
        (False, None, "a", False),
        (None, None, None, False),
    ]:
        assert sql(ask, [everyone, who, tenant]) == [(visible,)], (everyone, who, tenant)


def test_of_some_jobs_the_callers_own_are_visible_wherever_they_are(each_hf: Holdfast, each_sql: Sql) -> None:
    @each_hf.task(name="t")
    def handler() -> None: ...

    def made(tenant: str | None) -> set[str]:
        due, later, over, dead = [
            handler.using(tenant=tenant, delay=delay).enqueue().id for delay in (None, 60, None, None)
        ]
        each_hf.jobs.cancel(over)
        each_sql("delete from live where id = %s", [dead])
        each_sql(
            "insert into dead (id, status, queue, priority, lane, run_at, created_at, finished_at, attempt, "
            "max_attempts, task, tenant, payload) "
            "values (%s, 'dead', 'default', 2, 0, now(), now(), now(), 1, 1, 't', %s, '{}')",
            [dead, tenant],
        )
        return {due, later, over, dead}

    mine, others, nobodys = made("mine"), made("other"), made(None)
    every = list(mine | others | nobodys)

    def visible(everyone: bool, who: str | None) -> set[str]:
        return {str(i) for i in each_sql("select seen_jobs(%s, %s, true, %s::uuid[])", [everyone, who, every])[0][0]}

    assert visible(False, "mine") == mine
    assert visible(True, None) == mine | others | nobodys
    assert visible(False, None) == set()


def test_a_repeated_request_finds_its_response_and_another_with_its_key_is_refused(each_sql: Sql) -> None:
    begin = "select outcome, status, body from begin_response(%s, 'k', %s)"
    assert each_sql(begin, ["acme", b"1"]) == [("new", None, None)]
    each_sql("select store_response('acme', 'k', 201::smallint, 'made')")
    assert each_sql(begin, ["acme", b"1"]) == [("same", 201, "made")]
    assert each_sql(begin, ["acme", b"2"]) == [("other", None, None)]
    assert each_sql(begin, ["other", b"1"]) == [("new", None, None)]


def test_responses_are_pruned_after_a_day(sql: Sql) -> None:
    sql("select begin_response('o', k, 'x') from unnest('{old,new}'::text[]) k")
    sql("update responses set created_at = created_at - interval '25 hours' where key = 'old'")
    sql("select prune()")
    assert sql("select key from responses") == [("new",)]


def cli(dsn: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"HOLDFAST_DSN": dsn})


def test_tokens_are_made_listed_and_revoked_on_the_command_line(hf: Holdfast, dsn: str) -> None:
    made = cli(dsn, "tokens", "create", "web tier", "--tenant", "acme", "--scopes", "jobs:read, jobs:write", "--json")
    token = json.loads(made.stdout)
    assert used(hf, token["token"]).id == token["id"]
    assert token["expires_at"] is None and token["scopes"] == ["jobs:read", "jobs:write"]
    plain = cli(dsn, "tokens", "create", "ops", "--all-tenants", "--scopes", "admin", "--expires", "90d")
    assert used(hf, plain.stdout.strip()).everyone
    listed = cli(dsn, "tokens")
    assert "web tier" in listed.stdout and "(all)" in listed.stdout and token["token"] not in listed.stdout
    assert [each["name"] for each in json.loads(cli(dsn, "tokens", "list", "--tenant", "acme", "--json").stdout)] == [
        "web tier"
    ]
    assert cli(dsn, "tokens", "revoke", token["id"]).stdout == f"revoked token {token['id']}\n"
    assert used(hf, token["token"]) is None


def test_lists_say_which_tokens_are_valid_expired_or_revoked(hf: Holdfast, dsn: str, sql: Sql) -> None:
    made = {name: hf.tokens.create(name, tenant="acme", scopes=["jobs:read"])[1].id for name in ("a", "b", "c")}
    sql("update api_tokens set expires_at = now() - interval '1 second' where id = %s", [made["b"]])
    hf.tokens.revoke(made["c"])
    assert {it.name: it.state for it in hf.tokens.list()} == {"a": "valid", "b": "expired", "c": "revoked"}
    shown = cli(dsn, "tokens").stdout.splitlines()
    for name, state in (("a", "valid"), ("b", "expired"), ("c", "revoked")):
        assert any(made[name] in line and state in line for line in shown)


def test_the_owner_of_a_token_must_be_given(hf: Holdfast, dsn: str) -> None:
    for whose in ([], ["--tenant", "acme", "--all-tenants"]):
        result = cli(dsn, "tokens", "create", "x", "--scopes", "jobs:read", *whose)
        assert result.exit_code == 2 and "--all-tenants" in result.output
