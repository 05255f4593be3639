"""Every program of docs/guides/transactions.md, run one after the other as it is written there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from psycopg.conninfo import conninfo_to_dict

from tests.support import django_site

Sql = Callable[..., list[tuple[Any, ...]]]
GUIDE = Path(__file__).parent.parent.parent / "docs/guides/transactions.md"


@pytest.fixture
def orders(dsn: str, sql: Sql) -> Iterator[None]:
    sql("drop table if exists public.orders")
    sql("create table public.orders (id integer primary key)")
    django_site.set_up(dsn)
    yield
    from django.db import connections

    connections.close_all()
    sql("drop table public.orders")


async def run(code: str, names: dict[str, Any]) -> None:
    """Run a program that may await at its top level, as in a notebook."""
    program = compile(code, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if (waiting := eval(program, names)) is not None:  # noqa: S307 - our own guide
        await waiting


async def test_every_program_commits_its_order_and_its_job(orders: None, dsn: str, sql: Sql) -> None:
    given = conninfo_to_dict(dsn)
    url = f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}&port={given['port']}"
    names: dict[str, Any] = {"dsn": url, "__name__": "guide"}
    setting, *programs = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    await run(setting, names)
    for program in programs:
        before = sql("select count(*) from public.orders")[0][0]
        if "django" in program:  # for sync code alone
            await sync_to_async(exec)(program, names)
        else:
            await run(program, names)
        stored = sql("select id from public.orders order by id")
        assert len(stored) > before, program
        assert sql("select (payload ->> 'order')::int from jobs order by id") == stored, program
    assert stored == [(n,) for n in range(1, 8)]
    from django.db import connections

    await sync_to_async(connections.close_all)()
