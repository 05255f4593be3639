"""The steps of docs/guides/production.md: an owner, no superuser, migrates, and a user with fewer rights runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from holdfast import Holdfast
from tests.conftest import ROOT
from tests.support.running import ended, working

ROLES = ("enqueue", "worker", "reader", "service", "admin")
PAGE = (ROOT / "docs" / "guides" / "production.md").read_text()


@pytest.fixture(params=["pg18", "pg16"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A new database of an owner who may create roles, and the schema that names them."""
    admin, schema = request.getfixturevalue(request.param), f"walk_{os.getpid()}"
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {schema}_runner LOGIN")
        conn.execute(f"CREATE ROLE {schema}_owner LOGIN CREATEROLE")
        conn.execute(f"CREATE DATABASE {schema} OWNER {schema}_owner")
        yield psycopg.conninfo.make_conninfo(admin, dbname=schema), schema
        conn.execute(f"DROP DATABASE {schema} WITH (FORCE)")
        for role in (*ROLES, "runner", "owner"):
            conn.execute(f"DROP ROLE IF EXISTS {schema}_{role}")


async def test_an_owner_migrates_and_a_user_with_fewer_rights_runs(address: tuple[str, str]) -> None:
    dsn, schema = address
    owner = psycopg.conninfo.make_conninfo(dsn, user=f"{schema}_owner")
    with Holdfast(owner, schema=schema) as hf:
        hf.migrate()
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute(f"GRANT {schema}_worker, {schema}_service TO {schema}_runner")
    hf = Holdfast(psycopg.conninfo.make_conninfo(dsn, user=f"{schema}_runner"), schema=schema)

    @hf.task()
    async def hello(name: str) -> str:
        return f"hello {name}"

    async with working(hf):
        job = await hello.aenqueue("ann")
        assert (await ended(hf, job.id)).result == "hello ann"
    await hf.aclose()


def test_the_guide_makes_these_roles() -> None:
    assert "createuser --createrole holdfast_owner" in PAGE and "createdb --owner=holdfast_owner jobs" in PAGE
    assert "grant holdfast_worker, holdfast_service to holdfast" in PAGE


def test_the_guide_installs_the_units_that_there_are() -> None:
    for unit in (ROOT / "deploy" / "systemd").glob("*.service"):
        assert unit.stem in PAGE
