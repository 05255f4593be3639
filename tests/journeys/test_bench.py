"""`holdfast bench` runs: a workload that only people start would break unnoticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psycopg
import pytest


@pytest.mark.parametrize("workload", ["enqueue_one", "enqueue_many"])
def test_a_workload_measures_something(database: str, workload: str) -> None:
    command = [sys.executable, "-m", "holdfast.cli", "bench", "-w", workload, "--scale", "0.001", "--json"]
    done = subprocess.run(
        command, env=os.environ | {"HOLDFAST_DSN": database}, capture_output=True, text=True, timeout=100, check=False
    )
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("drop schema holdfast_bench cascade")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["name"] == workload
    assert told["jobs"] >= 500 and told["jobs_per_s"] > 0 and told["ratio"] > 0
