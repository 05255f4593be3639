"""What every run of an example relies on: it leaves other jobs alone, and reports a promise that was not kept."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.testing import scratch_database
from stage import Stage, run


@pytest.fixture
def hf(holdfast_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """An application with a database of its own: a run drops what it finds there, the test kit's functions too."""
    monkeypatch.setattr(sys, "argv", ["harmonyk"])
    log = logging.getLogger("holdfast")
    level = log.level
    with scratch_database(holdfast_server) as dsn, Holdfast(dsn) as made:
        yield made
    log.setLevel(level)  # a run is a separate process that silences it


def test_a_run_does_not_drop_the_jobs_of_a_database_that_it_was_given(hf: Holdfast) -> None:
    @hf.task()
    def send() -> None:
        pass

    job = send.enqueue()
    with pytest.raises(SystemExit, match="HOLDFAST_DSN names a database with jobs"):
        run("harmonyk", hf, lambda stage: None, look_at="usage")
    assert [each.id for each in hf.jobs.list()] == [job.id]


def test_a_run_fails_with_the_promise_that_was_not_kept(hf: Holdfast, capsys: pytest.CaptureFixture[str]) -> None:
    def play(stage: Stage) -> None:
        stage.check("this is kept", 1, True)
        stage.check("this is not", 2, False)

    assert run("harmonyk", hf, play, look_at="usage") == 1
    shown = capsys.readouterr().out
    assert [line.split()[-2] for line in shown.splitlines() if "this is" in line] == ["PASS", "FAIL"]


def test_a_run_that_waits_in_vain_fails_and_says_for_what(hf: Holdfast, capsys: pytest.CaptureFixture[str]) -> None:
    def play(stage: Stage) -> None:
        stage.follow("a job", lambda: {"queued": 1}, ended={"succeeded"}, seconds=0)

    assert run("harmonyk", hf, play, look_at="usage") == 1
    assert "waited 0 s in vain for a job" in capsys.readouterr().out


def test_a_run_that_is_given_arguments_says_that_it_takes_none(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["harmonyk", "abc"])
    assert run("harmonyk", hf, lambda stage: None, look_at="usage") == 2
    assert capsys.readouterr() == ("", "error: this run takes no arguments; it was given: abc\n")
