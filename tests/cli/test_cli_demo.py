"""`holdfast demo`: what a newcomer sees first."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.cli import demo
from tests.conftest import wait_until
from tests.support.program import ran, started

Sql = Callable[..., list[tuple[Any, ...]]]


def test_the_demo_runs_every_job_to_one_final_status(dsn: str, sql: Sql) -> None:
    result = ran("postgresql://nobody@127.0.0.1:1/production", "demo", "--jobs", "120", "--dsn", dsn)
    assert result.returncode == 0, result.stderr
    assert "checked: every one of the 120 jobs has exactly one final status" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""
    assert "export HOLDFAST_DSN=" in result.stdout
    assert dict(sql("SELECT status::text, count(*) FROM jobs GROUP BY 1")) == {"succeeded": 118, "failed": 1, "dead": 1}
    assert sql("SELECT count(DISTINCT tenant), count(DISTINCT task) FROM jobs") == [(12, 6)]
    assert sql("SELECT count(*) FROM workers") == [(0,)]


def test_an_interrupted_demo_leaves_nothing_that_waits(dsn: str, tmp_path: Path, sql: Sql) -> None:
    with started("", "demo", "--jobs", "4000", "--dsn", dsn, folder=tmp_path) as program:
        wait_until(lambda: re.search("accepted 4,000 jobs", program.output))
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.ended() == 130
    assert "Traceback" not in program.output
    assert sql("SELECT count(*) FROM live") == sql("SELECT count(*) FROM later") == [(0,)]
    assert sql("SELECT count(*) FROM jobs WHERE status = 'canceled'")[0][0] > 0


def test_tenants_differ_in_size_and_each_has_a_job() -> None:
    counts = Counter(demo.tenant_of(number) for number in range(6000))
    assert set(counts) == set(demo.TENANTS)
    assert counts["acme"] > 5 * counts["lumen"] > 0
    assert set(Counter(demo.tenant_of(number) for number in range(12)).values()) == {1}
