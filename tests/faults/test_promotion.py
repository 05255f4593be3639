"""A lagging standby is promoted where the clock is behind: what is lost is known, and no token comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres
from tests.conftest import wait_until
from tests.support import standby
from tests.support.mutants import _source

Sql = Callable[..., list[tuple[Any, ...]]]
LATE = [("clock_timestamp()", "(clock_timestamp() - interval '30 minutes')")]
NO_LEAD = [("+ clock_lead()", "")]


@contextmanager
def asked(dsn: str) -> Iterator[Sql]:
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:

        def run(query: str, params: Any = None) -> list[tuple[Any, ...]]:
            cursor = conn.execute(query, params)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    with standby.server(tmp_path / "primary") as made:
        Holdfast(made.dsn()).migrate()
        yield made


def put(dsn: str, number: int) -> list[str]:
    with Holdfast(dsn) as hf:
        return hf.task(name="noop")(lambda n: None).enqueue_many(range(number)).ids


def fail_over(primary: EmbeddedPostgres, folder: Path) -> tuple[EmbeddedPostgres, list[str], list[int], list[str]]:
    """Lose the primary with claims and jobs that its standby never received; return the promoted standby, not started,
    the jobs that it knows, the tokens that were lost, and the jobs that were."""
    known = put(primary.dsn(), 40)
    other = standby.follow(primary, folder)
    with standby.launched(other):  # caught up, and never connected again
        wait_until(lambda: "consistent recovery state reached" in other.log.read_text())
    standby.append(other, primary_conninfo="")
    lost = put(primary.dsn(), 5)
    with asked(primary.dsn()) as sql:
        tokens = [sql("select distinct token from claim('ada', '{default}', 1)")[0][0] for _ in range(30)]
    primary.stop("immediate")
    return other, known, tokens, lost


def promoted_tokens(other: EmbeddedPostgres, changes: list[tuple[str, str]]) -> tuple[list[int], set[str]]:
    """Promote the standby, with a next_token() whose text is changed; return the tokens of its claims and the jobs that
    it has."""
    with standby.launched(other):
        standby.run(other, "pg_ctl", "promote", f"--pgdata={other.data}", "--wait")
        text = _source("next_token")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        with asked(other.dsn()) as sql:
            sql(text)
            assert sql("select pg_is_in_recovery(), current_timeline()") == [(False, 2)]
            tokens = [sql("select distinct token from claim('bob', '{default}', 1)")[0][0] for _ in range(10)]
            sql("select upkeep('bob', '10s')")
            assert sql("select timeline from token_clock") == [(2,)]
            tokens += [sql("select distinct token from claim('bob', '{default}', 1)")[0][0] for _ in range(10)]
            return tokens, {row[0] for row in sql("select id::text from jobs")}


def test_tokens_never_go_back_although_claims_and_half_an_hour_are_lost(
    primary: EmbeddedPostgres, tmp_path: Path
) -> None:
    other, known, before, lost = fail_over(primary, tmp_path / "standby")
    after, found = promoted_tokens(other, LATE)
    assert min(after) > max(before), "a token came twice, or went back"
    assert sorted(after) == after
    assert found == set(known), "exactly what was committed after the last record it received is lost"
    assert not found & set(lost)


def test_the_check_goes_red_without_the_lead_of_the_new_timeline(primary: EmbeddedPostgres, tmp_path: Path) -> None:
    other, _, before, _ = fail_over(primary, tmp_path / "standby")
    after, _ = promoted_tokens(other, LATE + NO_LEAD)
    assert min(after) < max(before)
