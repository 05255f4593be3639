"""Dedupe keys as the client makes them: by task, tenant and arguments, set apart from all others."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import ConfigurationError, Dedupe, DuplicateJob, Holdfast, UsageError
from holdfast.errors import LockTimeout
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - fixture
from tests.support.sql_core import Sql


@pytest.fixture
def tasks(hf: Holdfast) -> tuple[Any, Any]:
    @hf.task(name="mail", dedupe=Dedupe())
    def mail(to: str, options: dict[str, Any] | None = None) -> None: ...

    @hf.task(name="sms", dedupe=Dedupe())
    def sms(to: str, options: dict[str, Any] | None = None) -> None: ...

    return mail, sms


def test_a_derived_key_is_task_tenant_and_sorted_json(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    job = mail.enqueue("a@b.c", {"z": 1, "a": [2, {"y": "ü", "b": None}]}).info()
    assert job.dedupe_key == 'mail::global::{"options":{"a":[2,{"b":null,"y":"ü"}],"z":1},"to":"a@b.c"}'
    job = mail.using(tenant="acme").enqueue(to="a@b.c").info()
    assert job.dedupe_key == 'mail::acme::{"to":"a@b.c"}'


def test_a_callers_key_is_set_apart_by_task_and_tenant_too(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    assert mail.using(dedupe="o-42").enqueue("a").info().dedupe_key == "mail::global::o-42"
    assert mail.using(dedupe="o-42", tenant="acme").enqueue("a").info().dedupe_key == "mail::acme::o-42"


def test_the_same_arguments_in_any_order_are_the_same_key(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    first = mail.enqueue("a", {"x": 1, "y": 2})
    second = mail.enqueue(options={"y": 2, "x": 1}, to="a")
    assert (second.id, second.existing) == (first.id, True)


def test_tenants_and_tasks_never_meet(tasks: tuple[Any, Any]) -> None:
    mail, sms = tasks
    made = [each.using(tenant=tenant).enqueue("a") for each in (mail, sms) for tenant in (None, "acme", "zeta")]
    assert len({job.id for job in made}) == 6
    assert not any(job.existing for job in made)


def test_a_tenant_named_global_does_not_meet_the_jobs_of_no_tenant(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    without_tenant = mail.enqueue("a")
    someone = mail.using(tenant="global").enqueue("a")
    assert someone.id != without_tenant.id


def test_colons_in_names_cannot_make_two_tenants_meet(hf: Holdfast) -> None:
    @hf.task(name="mail", dedupe=Dedupe())
    def mail() -> None: ...

    @hf.task(name="mail::acme", dedupe=Dedupe())
    def other() -> None: ...

    first = mail.using(tenant="acme::x", dedupe="k").enqueue()
    second = mail.using(tenant="acme", dedupe="x::k").enqueue()
    third = other.using(tenant="x", dedupe="k").enqueue()
    assert len({first.id, second.id, third.id}) == 3


def test_a_long_key_gives_way_to_its_hash_and_still_dedupes(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    first, second = mail.enqueue("a" * 50_000), mail.enqueue("a" * 50_000)
    assert first.id == second.id
    assert first.info().dedupe_key.startswith("mail::global::sha256:")
    assert mail.enqueue("a" * 50_001).id != first.id


def test_the_client_raises_with_the_key(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    mail.enqueue("a")
    with pytest.raises(DuplicateJob, match="nothing was enqueued") as caught:
        mail.using(on_conflict="raise").enqueue("a")
    assert caught.value.key == 'mail::global::{"to":"a"}'


def test_a_key_rolled_back_with_the_callers_transaction_is_free(dsn: str, tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    with psycopg.connect(dsn) as conn:
        lost = mail.using(conn=conn).enqueue("a")
        conn.rollback()
    kept = mail.enqueue("a")
    assert not kept.existing
    assert lost.info() is None


def test_many_jobs_with_derived_keys_are_deduped_among_themselves(tasks: tuple[Any, Any], sql: Sql) -> None:
    mail, _ = tasks
    handles = mail.enqueue_many(["a", "b", "a", {"to": "b"}, ("c",)])
    ids = handles.ids
    assert [each.existing for each in handles] == [False, False, True, True, False]
    assert ids[2:4] == ids[:2]
    assert len(set(ids)) == 3
    assert core.count(sql, "live") == 3


def test_one_key_cannot_be_given_to_many_jobs(tasks: tuple[Any, Any]) -> None:
    mail, _ = tasks
    with pytest.raises(UsageError, match="one id or dedupe key cannot be given to many jobs"):
        mail.using(dedupe="k").enqueue_many(["a", "b"])


@pytest.mark.parametrize(
    "wrong", [{"scope": "sometimes"}, {"on_conflict": "panic"}, {"scope": "running", "keep": 5}], ids=str
)
def test_a_dedupe_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"'sometimes'|'panic'|'running'"):
        Dedupe(**wrong)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_replace_that_waits_in_vain_for_a_lock_is_not_repeated(
    dsn: str, sql: Sql, tasks: tuple[Any, Any], is_async: bool
) -> None:
    mail, _ = tasks
    latest = mail.using(dedupe="k", on_conflict="replace")
    first = latest.enqueue("a")
    sql("create sequence public.tries")
    sql("""create function public.count_try() returns trigger language plpgsql as
        $$ begin perform nextval('public.tries'); return null; end $$""")
    sql("create trigger counts before update on live for each statement execute function public.count_try()")
    try:
        with core.session(dsn, autocommit=False) as caller:
            caller.execute("select 1 from live for update")
            with pytest.raises(LockTimeout, match="is being changed by a transaction that is still open"):
                await latest.aenqueue("b") if is_async else latest.enqueue("b")
        assert sql("select last_value from public.tries") == [(1,)]
        assert latest.enqueue("b").id == first.id
    finally:
        sql("drop trigger counts on live; drop function public.count_try; drop sequence public.tries")
