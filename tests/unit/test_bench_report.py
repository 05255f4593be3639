"""The output of `holdfast bench`: results and progress."""

from __future__ import annotations

import itertools
import json

import pytest

from holdfast import UsageError, bench
from holdfast.bench import report, workloads
from holdfast.bench.harness import Result
from holdfast.settings import Settings

LONGEST = Result(
    "latency_rabbitmq", 1_000_000, 1234.5, 123_456.7, 12_345.67, 98_765.43, 1_234_567.8, 0.1, note="limit: " + "n " * 90
)
PLAIN = Result("drain", 200_000, 10.0, 20_000.0, limit_jobs_per_s=40_000.0, ratio=0.5)
EXPLANATION = "One worker process."


def test_each_workload_is_explained_in_one_line_of_80_columns() -> None:
    for work in workloads.ALL.values():
        assert 0 < len(report.INDENT + (work.__doc__ or "").splitlines()[0]) <= report.WIDTH


def test_a_row_and_its_note_fit_on_80_columns() -> None:
    assert len(report.HEAD) <= 80
    for result in (LONGEST, PLAIN):
        lines = report.row(result, EXPLANATION, 1234).splitlines()
        assert max(map(len, lines)) <= 80
    assert report.row(PLAIN, "", 9.7) == (
        "drain              200,000    20,000    40,000   0.50                     10 s"
    )


def test_a_row_is_shown_as_soon_as_its_workload_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    shown = report.Report(json=False, workloads=2)
    with shown.measuring("drain", "One worker process."):
        out, err = capsys.readouterr()
        assert out == report.HEAD + "\n"
        assert "ratio is jobs/s to limit/s" in err
        assert err.endswith("measuring drain (1 of 2): One worker process.\n")
    shown.show(PLAIN, EXPLANATION)
    assert capsys.readouterr().out.startswith("drain              200,000")


def test_without_a_terminal_a_line_shows_progress_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    ticks = itertools.count(step=10)
    shown = report.Report(json=True, workloads=1, clock=lambda: next(ticks))
    with shown.measuring("drain", "One.") as progress:
        for done in range(7):
            progress(f"{done} of 7 jobs done")
    assert capsys.readouterr().err.splitlines()[1:] == ["30 s: 2 of 7 jobs done", "60 s: 5 of 7 jobs done"]


def test_for_programs_there_is_one_object_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    shown = report.Report(json=True, workloads=1)
    with shown.measuring("drain", "One."):
        pass
    shown.show(PLAIN, EXPLANATION)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["jobs_per_s"] == 20_000


@pytest.mark.parametrize(("name", "expected"), [("drian", "did you mean 'drain'\\?"), ("zzz", "known: enqueue_one, ")])
def test_a_workload_that_is_not_there_gets_a_suggestion(name: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"no workload named '{name}'; {expected}"):
        bench.run(Settings.load(dsn="postgresql://nowhere/none"), workloads=[name])
