"""The pytest plugin, as a user's project has it: pytest in a process of its own, which finds it by its entry point."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.pace import slower

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "guides" / "testing.md").read_text()
APP = """
from holdfast import Holdfast

hf = Holdfast()


@hf.task()
async def double(n: int) -> int:
    return 2 * n
"""
INI = """
[pytest]
holdfast_app = app:hf
pythonpath = .
filterwarnings = error
asyncio_default_fixture_loop_scope = function
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that registers the plugin with pytest, as an installation of this source would."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "holdfast-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in declared.items()))
    return folder


@pytest.fixture
def project(tmp_path: Path, installed: Path, pg18: str) -> Run:
    """Write files into a folder and run pytest there, by default on the server these tests run on."""

    def run(*args: str, files: dict[str, str], passes: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        path = os.pathsep.join([str(ROOT / "src"), str(installed)])
        environment = (
            os.environ
            | {
                "PYTHONPATH": path,
                "HOLDFAST_TEST_DSN": pg18,
                "PYTHONDONTWRITEBYTECODE": "1",
                # A starting pytest closes the temporary folder of root to other accounts, under running servers.
                "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
                # Our plugins that a user's project need not have: they take two thirds of a start.
                "PYTEST_ADDOPTS": "-p no:schemathesis -p no:hypothesispytest",
            }
            | env
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *args],
            cwd=tmp_path,
            env=environment,
            timeout=100,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        return done

    return run


def guide_files() -> dict[str, str]:
    return dict(re.findall(r"```(?:python|ini)\n# ([\w.]+)\n(.*?)```", GUIDE, re.S))


def test_the_guides_project_passes_as_it_stands_in_the_guide(project: Run) -> None:
    files = guide_files()
    failing = files.pop("test_wrong.py")
    assert "def test_fails_on_purpose" in failing
    tests = sum(text.count("\ndef test_") for text in files.values())
    assert tests >= 16
    assert f"{tests} passed" in project(files=files).stdout


def test_the_failure_in_the_guide_is_the_one_a_user_sees(project: Run) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", GUIDE, re.S)
    output = project("test_wrong.py", files=guide_files(), passes=False).stdout
    lines = [
        line.removeprefix("E").removeprefix(" " * 7).removeprefix("AssertionError: ") for line in output.splitlines()
    ]
    first = lines.index(shown.splitlines()[0])
    assert lines[first : first + len(shown.splitlines())] == shown.splitlines()
    assert "kit.py" not in output.partition("short test summary")[0]  # only the test's own line is shown


def test_two_processes_have_a_database_each(project: Run, tmp_path: Path) -> None:
    test = """
from pathlib import Path

import pytest
from app import double


@pytest.mark.parametrize("n", range(20))
def test_it(holdfast_kit, n, worker_id):
    with Path(f"dsn-{worker_id}").open("a") as file:
        file.write(holdfast_kit.dsn + "\\n")
    double.enqueue(n)
    assert [each.result for each in holdfast_kit.drain()] == [2 * n]
"""
    output = project("-n", "2", files={"app.py": APP, "pytest.ini": INI, "test_it.py": test}).stdout
    assert "20 passed" in output
    first, second = (set(file.read_text().split()) for file in sorted(tmp_path.glob("dsn-gw*")))
    assert len(first) == len(second) == 1
    assert first != second


def test_without_a_server_one_is_embedded_in_the_cache_folder_and_stopped(project: Run, tmp_path: Path) -> None:
    test = (
        "from app import double\ndef test_it(holdfast_kit):\n    double.enqueue(1)\n    assert holdfast_kit.drain()\n"
    )
    files = {"app.py": APP, "pytest.ini": INI, "test_it.py": test}
    project(files=files, HOLDFAST_TEST_DSN="")
    (folder,) = (tmp_path / ".pytest_cache").rglob("postgresql")
    assert (folder / "data18" / "PG_VERSION").exists()
    assert not (folder / "data18" / "postmaster.pid").exists()


def test_it_is_inert_where_it_is_not_requested(project: Run) -> None:
    test = """
import sys


def test_it(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("holdfast")
    assert not [name for name in sys.modules if name.startswith(("holdfast", "psycopg"))]
"""
    project(files={"test_it.py": test, "pytest.ini": "[pytest]\nasyncio_default_fixture_loop_scope = function\n"})


def test_importing_it_takes_less_than_ten_milliseconds() -> None:
    code = "import time, pytest; t = time.process_time(); import pytest_holdfast; print(time.process_time() - t)"

    def once() -> float:
        env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return float(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout)

    assert min(once() for _ in range(4)) < 0.010 * slower()


def test_a_test_that_does_not_ask_reaches_no_database(project: Run, pg18: str) -> None:
    test = """
import asyncio

import pytest
from app import double, hf
from holdfast import ConfigurationError, UsageError
from holdfast.worker import Worker


def test_without(request):
    for enqueue in (lambda: double.enqueue(1), lambda: double.enqueue_many([1]), lambda: hf.jobs.list()):
        with pytest.raises(UsageError, match="app:hf without the test kit; add the fixture holdfast_kit"):
            enqueue()
    with pytest.raises(UsageError, match="add the fixture holdfast_kit"):
        asyncio.run(double.aenqueue(1))
    with pytest.raises(ConfigurationError, match="no database"):
        asyncio.run(Worker(hf).run())
    asyncio.run(hf.aclose())  # what an application does when it ends is no trouble


def test_with(holdfast_kit):
    double.enqueue(1)


def test_without_again():
    test_without(None)
"""
    output = project(
        files={"app.py": APP, "pytest.ini": INI, "test_it.py": test}, HOLDFAST_DSN="postgresql://x/none"
    ).stdout
    assert "3 passed" in output


def test_a_production_database_is_refused(project: Run, pg18: str) -> None:
    test = "def test_it(holdfast_kit): ...\n"
    files = {"app.py": APP, "pytest.ini": INI, "test_it.py": test}
    output = project(files=files, passes=False, HOLDFAST_DSN=pg18).stdout
    assert "HOLDFAST_TEST_DSN names the same database as HOLDFAST_DSN" in output


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", 'set holdfast_app = "MODULE:ATTRIBUTE"'),
        ("holdfast_app = nowhere:hf", "holdfast_app = 'nowhere:hf' in pytest's settings cannot be found"),
        ("holdfast_app = app:APP", "is of type str, not a Holdfast application"),
        ("holdfast_app = app:hf\nholdfast_isolation = none", "must be 'empty' or 'copy', got 'none'"),
    ],
)
def test_a_setting_that_cannot_work_is_explained(project: Run, setting: str, expected: str) -> None:
    ini = INI.replace("holdfast_app = app:hf", setting)
    files = {"app.py": APP + "APP = 'x'\n", "pytest.ini": ini, "test_it.py": "def test_it(holdfast_kit): ...\n"}
    assert expected in project(files=files, passes=False).stdout


def test_each_test_may_have_a_copy_of_the_template(project: Run) -> None:
    conftest = """
import psycopg
import pytest


@pytest.fixture(scope="session")
def holdfast_template(holdfast_template):
    with psycopg.connect(holdfast_template) as conn:
        conn.execute("create table plans (name text); insert into plans values ('free')")
    return holdfast_template
"""
    test = """
import psycopg
import pytest
from app import double


@pytest.mark.parametrize("n", range(3))
def test_it(holdfast_kit, n):
    holdfast_kit.clock.travel(60)
    with psycopg.connect(holdfast_kit.dsn) as conn:
        assert conn.execute("select count(*) from plans").fetchone() == (1,)
        conn.execute("insert into plans values ('paid')")
        conn.execute("alter table plans add price integer")
    double.enqueue(n)
    assert [each.result for each in holdfast_kit.drain()] == [2 * n]
"""
    files = {
        "app.py": APP,
        "pytest.ini": INI + "holdfast_isolation = copy\n",
        "conftest.py": conftest,
        "test_it.py": test,
    }
    assert "3 passed" in project(files=files).stdout


def test_a_database_that_something_else_made_can_be_used(project: Run, pg18: str) -> None:
    name = f"made_elsewhere_test_{os.getpid()}"
    conftest = """
import os

import pytest
from app import App


@pytest.fixture
def holdfast_app():
    return App()


@pytest.fixture
def holdfast_database():
    return os.environ["ELSEWHERE"]
"""
    app = """
from holdfast import Holdfast


def App():
    hf = Holdfast()
    hf.task(name="double")(lambda n: 2 * n)
    return hf
"""
    test = """
import pytest


@pytest.mark.parametrize("n", range(2))
def test_it(holdfast_kit, n):
    holdfast_kit.hf.registry.tasks["double"].enqueue(n)
    assert [each.result for each in holdfast_kit.drain()] == [2 * n]
    assert len(holdfast_kit.all_enqueued()) == 1
"""
    ini = INI.replace("holdfast_app = app:hf\n", "")
    with psycopg.connect(pg18, autocommit=True) as admin:
        admin.execute(f"create database {name}")
        try:
            files = {"app.py": app, "pytest.ini": ini, "conftest.py": conftest, "test_it.py": test}
            dsn = pg18.replace("/postgres?", f"/{name}?")
            assert "2 passed" in project(files=files, ELSEWHERE=dsn).stdout
        finally:
            admin.execute(f"drop database {name} with (force)")


def test_a_test_with_a_database_of_its_own_costs_milliseconds(project: Run, tmp_path: Path) -> None:
    """Measured 3 to 6 ms a test, enqueue and teardown included (decision 014)."""
    test = """
import pytest
from app import double


@pytest.mark.parametrize("n", range(40))
def test_it(holdfast_kit, n):
    double.enqueue(n)
    holdfast_kit.assert_enqueued(double, n, count=1)
"""
    project("--junitxml=times.xml", files={"app.py": APP, "pytest.ini": INI, "test_it.py": test})
    cases = ET.parse(tmp_path / "times.xml").getroot().iter("testcase")  # noqa: S314 - our own file
    times = sorted(float(case.attrib["time"]) for case in cases)
    assert len(times) == 40
    assert times[20] < 0.1 * slower()


def test_a_handler_in_a_process_of_its_own_is_drained_there_and_knows_the_tests_database(project: Run) -> None:
    app = f"""
import os
{APP}
from holdfast import Snooze


@hf.task(runner="process")
def apart(n: int) -> int:
    if n < 0:
        raise ValueError("negative over there") if n == -1 else Snooze(60)
    double.enqueue(n)
    return os.getpid()
"""
    test = r"""
import os

import pytest
from app import apart, double
from holdfast import JobFailed


def test_it(holdfast_kit):
    apart.enqueue(4)
    drained = holdfast_kit.drain()
    assert drained.of(apart)[0].result != os.getpid()
    assert drained.of(double)[0].result == 8


def test_its_error(holdfast_kit):
    apart.enqueue(-1)
    with pytest.raises(JobFailed, match=r"(?s)ValueError: negative over there.*line \d+, in apart"):
        holdfast_kit.drain()


def test_its_wish(holdfast_kit):
    apart.enqueue(-2)
    assert [attempt.outcome for attempt in holdfast_kit.drain()] == ["snoozed"]
"""
    files = {"app.py": app, "pytest.ini": INI, "test_it.py": test}
    assert "3 passed" in project(files=files, HOLDFAST_DSN="postgresql://nowhere/none").stdout
