"""Telemetry that is off costs a job nothing: no extra is imported, and no function of telemetry is called for a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys

EXTRAS = ("sentry_sdk", "opentelemetry", "prometheus_client")
DRAIN = """
import collections, json, sys
from holdfast import Holdfast

hf = Holdfast(sys.argv[1])

@hf.task()
async def nothing(n: int) -> None: ...

calls = collections.Counter()

def note(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and "holdfast" in name and ("/telemetry/" in name or "/around." in name):
        calls[frame.f_code.co_qualname] += 1

records = []
for jobs in (100, 600):
    calls.clear()
    sys.setprofile(note)
    nothing.enqueue_many(range(jobs))
    hf.tick(max_jobs=jobs)
    sys.setprofile(None)
    records.append(dict(calls))
print(json.dumps([records, sorted(sys.modules)]))
"""


def test_no_job_costs_a_call(dsn: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRAIN, dsn], check=True, capture_output=True, text=True, env=os.environ
    )
    (few, many), modules = json.loads(done.stdout)
    grown = {name: calls - few.get(name, 0) for name, calls in many.items() if calls > few.get(name, 0) + 50}
    assert grown == {}, "called for each of 500 jobs more"
    assert [name for name in modules if name.startswith(EXTRAS)] == []
