"""Measures ways to give each test an empty database (decision 014), on an embedded server or on that of --dsn."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg

from holdfast import Holdfast
from holdfast.store.dev.embedded import EmbeddedPostgres
from holdfast.testing import Databases, bind, scratch_database

ROUNDS = 30
TABLES = "live, later, dead, history, claims, workers, sleepers, dedupe, tasks, leader"
Step = Callable[[], object]


def measure(what: str, step: Step, before: Step = lambda: None) -> None:
    """Print the median and the 90th percentile of a step, which runs after `before` each time."""
    costs = []
    for _ in range(ROUNDS):
        before()
        began = time.perf_counter()
        step()
        costs.append((time.perf_counter() - began) * 1000)
    costs.sort()
    print(f"{what:<52} p50 {costs[ROUNDS // 2]:7.1f} ms   p90 {costs[int(ROUNDS * 0.9)]:7.1f} ms")


def measure_kit(dsn: str) -> None:
    """Measure what the test kit does: empty, bind, drain."""
    hf = Holdfast()
    task = hf.task(name="nothing")(lambda n: None)

    def used() -> None:
        with bind(hf, dsn, opened):
            task.enqueue_many(range(20))

    def emptied() -> None:
        with bind(hf, dsn, opened):
            pass

    with Databases() as opened:
        opened.made(dsn)
        measure("bind: one process's database, emptied by delete", emptied, used)
        with bind(hf, dsn, opened) as kit:
            measure("drain of one job", kit.drain, lambda: task.enqueue(1))
            measure("drain of nothing", kit.drain)


def measure_truncate(dsn: str) -> None:
    """Measure TRUNCATE."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
        fill = "insert into live (id, task) select gen_random_uuid(), 't' from generate_series(1, 20)"
        measure(
            f"truncate of {TABLES.count(',') + 1} tables",
            lambda: conn.execute(f"truncate {TABLES}"),
            lambda: conn.execute(fill),
        )


def measure_copies(server: str, template: str) -> None:
    """Measure a new database for each test."""
    source = psycopg.conninfo.conninfo_to_dict(template)["dbname"]
    drop = f"drop database if exists {source}_copy with (force)"
    for strategy in ("wal_log", "file_copy"):
        create = f"create database {source}_copy template {source} strategy {strategy}"
        with psycopg.connect(server, autocommit=True) as conn:
            made = partial(conn.execute, create)
            gone = partial(conn.execute, drop)
            measure(f"create database from a template, {strategy}", made, gone)
            gone()
            measure("drop database", gone, made)


def main(server: str) -> None:
    with scratch_database(server) as dsn:
        measure_copies(server, dsn)
        measure_truncate(dsn)
        measure_kit(dsn)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", help="a server on which databases may be created")
    given = parser.parse_args().dsn
    if given:
        main(given)
    else:
        with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgresql") as embedded:
            main(embedded.dsn("postgres"))
