"""How the program fails: one line that says what to do, an exit code for scripts, no traceback."""

from __future__ import annotations

import pytest

from tests.support.program import holdfast, ran

AWAY = "postgresql://postgres@127.0.0.1:1/nowhere?connect_timeout=2"
SOME_ID = "018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f"


@pytest.mark.parametrize("command", [["jobs"], ["dead"], ["migrate"], ["migrate", "--check"], ["workers"]])
def test_a_database_that_is_away_is_exit_code_3(command: list[str]) -> None:
    result = holdfast(AWAY, *command)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
    assert "is it running?" in result.stderr


def test_no_database_at_all_is_exit_code_2() -> None:
    result = holdfast("", "jobs")
    assert result.exit_code == 2
    assert "set HOLDFAST_DSN" in result.stderr


@pytest.mark.parametrize("command", [["jobs"], ["dead"], ["jobs", "queues"], ["jobs", "enqueue", "app.send"]])
def test_a_schema_that_is_not_there_is_exit_code_2(dsn: str, command: list[str]) -> None:
    result = holdfast(dsn, *command, "--schema", "not_there")
    assert result.exit_code == 2
    assert "run: holdfast migrate" in result.stderr


def test_a_misspelt_setting_is_warned_of_and_stdout_stays_clean(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_POL", "3")
    result = holdfast(dsn, "jobs", "--json")
    assert (result.exit_code, result.stdout) == (0, "[]\n")
    assert result.stderr == "warning: unknown setting HOLDFAST_POL; did you mean HOLDFAST_POLL?\n"


def test_an_unknown_job_is_exit_code_1(dsn: str) -> None:
    result = holdfast(dsn, "jobs", "show", SOME_ID)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"there is no job {SOME_ID}" in result.stderr


def test_what_is_not_an_id_is_exit_code_2(dsn: str) -> None:
    result = holdfast(dsn, "jobs", "show", "42")
    assert result.exit_code == 2
    assert "'42' is not a job id" in result.stderr


def test_an_option_with_a_wrong_value_is_exit_code_2(dsn: str) -> None:
    assert holdfast(dsn, "jobs", "--status", "sleeping").exit_code == 2


def test_an_error_is_one_line_without_traceback_or_colour_unless_debugging(dsn: str) -> None:
    plain = ran(dsn, "jobs", "show", SOME_ID)
    assert plain.returncode == 1
    assert plain.stderr == f"error: there is no job {SOME_ID} in schema 'holdfast'; history may have been pruned\n"
    debugged = ran(dsn, "jobs", "show", SOME_ID, HOLDFAST_DEBUG="1")
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr
