"""`holdfast bench` and `python -m bench` run: without this a workload would break unnoticed."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast import Holdfast, UsageError, bench
from holdfast.bench import workloads
from holdfast.bench.harness import Bench, Result
from holdfast.settings import Settings
from tests.conftest import ROOT

QUICK = [sys.executable, "-m", "holdfast.cli", "bench"]
LONG = [sys.executable, "-m", "bench"]


@pytest.fixture
def server(database: str) -> Iterator[str]:
    """Where the bench makes its schema; gone afterwards."""
    yield database
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("drop schema holdfast_bench cascade")


# Some in one process each: starting it and making its schema takes longer than most of them.
@pytest.mark.parametrize(
    ("command", "chosen"),
    [
        (QUICK, tuple(workloads.ALL)),
        (LONG, ("latency_rabbitmq", "fair_claims", "pinned_fair", "blocked", "limited")),
        (LONG, ("rate", "serve_reads", "serve_creates", "observed_1000")),
        (LONG, ("outbox", "delivered", "webhooks", "process")),
    ],
    ids=["quick", "limits", "service", "effects"],
)
@pytest.mark.timeout(240)
def test_every_workload_measures_something(server: str, command: list[str], chosen: tuple[str, ...]) -> None:
    names = [part for name in chosen for part in ("-w", name)]
    env = os.environ | {"HOLDFAST_DSN": server}
    done = subprocess.run(
        [*command, *names, "--scale", "0.001", "--json"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["name"] for each in lines] == list(chosen)
    missing = [each["note"] for each in lines if each["note"].startswith("NOT MEASURED")]
    for each in lines:
        if each["note"] not in missing:
            assert each["jobs"] >= 20 and each["jobs_per_s"] > 0 and each["ratio"] > 0, each
            assert each["problems"] == []
    if missing:
        pytest.skip("; ".join(missing))


def test_it_measures_beside_the_schema_of_an_application_and_never_drops_one_that_it_did_not_make(
    database: str,
) -> None:
    with Holdfast(database, schema="shop") as hf:
        hf.migrate()
        id_ = hf.jobs.enqueue("kept", b"{}").id
        for _ in range(2):  # the second one drops the schema of the first
            bench.run(Settings(dsn=database, schema="shop"), workloads=["enqueue_one"], scale=0.001, json=True)
        assert hf.jobs.get(id_) is not None
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(
                "drop schema shop_bench cascade; create schema shop_bench; create table shop_bench.precious ()"
            )
            with pytest.raises(UsageError, match="'shop_bench' exists, and no bench has made it"):
                bench.run(Settings(dsn=database, schema="shop"), workloads=["enqueue_one"], scale=0.001)
            conn.execute("select 1 from shop_bench.precious")
            conn.execute("drop schema shop_bench cascade; drop schema shop cascade")


def _read_all(terminal: int) -> str:
    data = b""
    with contextlib.suppress(OSError):  # how a terminal reports that its other end is closed
        while part := os.read(terminal, 10_000):
            data += part
    os.close(terminal)
    return data.decode()


def test_a_terminal_shows_what_is_measured_while_rows_go_to_standard_output(server: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast.cli", "bench", "-w", "enqueue_one", "--scale", "0.001"]
    env = os.environ | {"HOLDFAST_DSN": server, "TERM": "xterm", "COLUMNS": "80"}
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(_read_all, ours)  # a terminal that is not read fills up
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=theirs, timeout=100, check=False)
        os.close(theirs)
        screen = reading.result()
    head, row, explanation = done.stdout.decode().splitlines()
    assert head.startswith("workload") and row.startswith("enqueue_one")
    assert explanation == "    One enqueue after another, each committed; limit: bare INSERT + COMMIT."
    assert "enqueue_one (1 of 1)" in screen and "0:00:0" in screen


def test_a_violated_invariant_fails_the_bench(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(bench: Bench) -> Result:
        """Break a promise."""
        return Result("rate", 1, 1.0, 1.0, problems=["11 starts within 3 s: above 10"])

    assert bench.run(Settings.load(dsn=server), json=True, known={"rate": broken}) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["problems"] == ["11 starts within 3 s: above 10"]
    assert "rate FAILED: 11 starts within 3 s: above 10" in output.err
