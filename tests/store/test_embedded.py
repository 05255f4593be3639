"""The embedded PostgreSQL: its users, its crashes, its accounts."""

from __future__ import annotations

import errno
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.store.dev import access
from holdfast.store.dev.embedded import EmbeddedPostgres, open_embedded, parse_embedded
from tests.conftest import PATIENCE

IS_ROOT = os.geteuid() == 0
NO_ID = 0xFFFF_FFFF
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

USER = """
import sys
from pathlib import Path
from holdfast.store.dev.embedded import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""

UNPRIVILEGED = """
import os, pwd, sys
from pathlib import Path
from holdfast.store.dev.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
if os.access(server.bin / "postgres", os.X_OK):
    with server:
        print(server.data.owner(), os.stat(f"/proc/{server.pid}").st_uid == nobody.pw_uid)
"""

FORKING = """
import os, sys
from holdfast.store.dev.embedded import open_embedded
server = open_embedded("embedded:" + sys.argv[1])
pid, child = server.pid, os.fork()
if child == 0:
    server.release()
    sys.exit()  # runs what the parent has registered with atexit
os.waitpid(child, 0)
print(server.pid == pid)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "pg")
    yield server
    server.stop("immediate")


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that uses the server of a folder until its standard input is closed."""
    command = [sys.executable, "-c", USER, str(path)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_in(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=60)
    assert process.returncode == 0


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def query(server: EmbeddedPostgres, sql: str) -> object:
    with psycopg.connect(server.dsn()) as connection:
        cursor = connection.execute(sql.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def kill_postmaster(server: EmbeddedPostgres) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: server.pid is None)


def eventually(happened: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_an_embedded_dsn_names_a_folder() -> None:
    assert parse_embedded("embedded:./.holdfast") == Path(".holdfast")
    assert parse_embedded("postgresql:///jobs") is None


def test_an_embedded_dsn_without_a_folder_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="'embedded:' names no folder"):
        parse_embedded("embedded:")


def test_another_dsn_cannot_be_opened_as_an_embedded_one() -> None:
    with pytest.raises(ConfigurationError, match="'postgresql:///jobs' is not an embedded one"):
        open_embedded("postgresql:///jobs")


def test_an_application_returns_the_address_that_other_libraries_connect_with(server: EmbeddedPostgres) -> None:
    other = "postgresql://ada@db.example.org/shop"
    assert Holdfast(f"embedded:{server.path}").database.url == server.start()
    assert Holdfast(other).database.url == other


def test_starting_twice_uses_the_running_server(server: EmbeddedPostgres) -> None:
    dsn, pid = server.start(), server.pid
    assert server.start() == dsn
    twin = EmbeddedPostgres(server.path)
    assert twin.start() == dsn
    assert twin.pid == server.pid == pid
    twin.release()
    assert server.pid == pid
    server.release()
    assert server.pid is None


def test_the_server_is_durable_and_listens_on_its_socket_only(server: EmbeddedPostgres) -> None:
    server.start()
    settings = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses", "server_encoding")
    assert [query(server, f"show {name}") for name in settings] == ["on", "on", "on", "", "UTF8"]
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o700


def test_opening_twice_in_one_process_shares_one_counted_instance(server: EmbeddedPostgres) -> None:
    dsn = f"embedded:{server.path}"
    first, second = open_embedded(dsn), open_embedded(dsn)
    assert first is second
    assert first.start() == second.dsn()
    first.release()
    assert query(second, "select 1") == 1
    second.release()
    assert server.pid is None


def test_only_the_last_of_two_processes_stops_the_server(server: EmbeddedPostgres) -> None:
    server.start()
    with another_process(server.path) as process:
        assert pid_in(process) == server.pid
        server.release()
        assert query(server, "select 1") == 1
        finish(process)
    assert server.pid is None


def test_a_process_that_leaves_early_does_not_stop_the_server(server: EmbeddedPostgres) -> None:
    server.start()
    with another_process(server.path) as process:
        pid_in(process)
        finish(process)
    assert query(server, "select 1") == 1
    server.release()
    assert server.pid is None


def test_processes_that_start_at_once_share_one_server(server: EmbeddedPostgres) -> None:
    with another_process(server.path) as first, another_process(server.path) as second:
        assert pid_in(first) == pid_in(second) == server.pid
        finish(first)
        assert server.pid is not None
        finish(second)
    assert server.pid is None


def test_a_killed_user_is_no_user_any_more(server: EmbeddedPostgres) -> None:
    with another_process(server.path) as process:
        pid = pid_in(process)
        process.kill()
        process.wait()
        server.start()
        assert server.pid == pid
        server.release()
    assert server.pid is None


def test_a_forked_child_does_not_stop_its_parents_server(server: EmbeddedPostgres) -> None:
    done = run_python(FORKING, str(server.path))
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert server.pid is None


def test_a_killed_postmaster_is_replaced_and_committed_data_are_kept(server: EmbeddedPostgres) -> None:
    server.start()
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create table kept as select 42 as answer")
        kill_postmaster(server)
    server.start()
    assert query(server, "select answer from kept") == 42


def test_data_survive_an_immediate_stop(server: EmbeddedPostgres) -> None:
    server.start()
    query(server, "create table kept as select 42 as answer")
    server.stop("immediate")
    assert server.pid is None
    server.start()
    assert query(server, "select answer from kept") == 42


def test_a_stale_pid_that_another_process_has_got_is_ignored(server: EmbeddedPostgres) -> None:
    server.start()
    noted = server.data / "postmaster.pid"
    lines = noted.read_text().splitlines()
    kill_postmaster(server)
    account = server.path.owner() if IS_ROOT else None
    with subprocess.Popen(["sleep", "60"], user=account) as sleeper:
        noted.write_text("\n".join([str(sleeper.pid), *lines[1:], ""]))
        (server.path / ".s.PGSQL.5432.lock").write_text("\n".join([str(sleeper.pid), *lines[1:5], ""]))
        server.start()
        assert query(server, "select 1") == 1
        assert sleeper.poll() is None
        sleeper.kill()


def test_an_interrupted_initdb_leaves_nothing_in_the_way(server: EmbeddedPostgres) -> None:
    with another_process(server.path) as process:
        eventually(lambda: list(server.path.glob("new-*/PG_VERSION")))
        os.killpg(process.pid, signal.SIGKILL)
    assert not server.data.exists()
    server.start()
    assert query(server, "select 1") == 1
    assert not list(server.path.glob("new-*"))


def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / ("long" * 15) / ("path" * 15))
    with server:
        sockets = Path(str(query(server, "show unix_socket_directories")).strip('"'))
        assert query(server, "select 1") == 1
        assert sockets.parent == Path(tempfile.gettempdir()).resolve()
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert server.pid is None
    assert not sockets.exists()


@pytest.mark.parametrize("major", [16, 18])
def test_each_major_version_starts_and_refuses_the_other(tmp_path: Path, major: int) -> None:
    other = EmbeddedPostgres(tmp_path / "pg", major={16: 18, 18: 16}[major])
    with EmbeddedPostgres(tmp_path / "pg", major=major) as server:
        assert str(query(server, "show server_version")).startswith(f"{major}.")
        with pytest.raises(ConfigurationError, match=f"postgresql {major}, not {other.major}"):
            other.start()
    assert server.pid is None
    with pytest.raises(ConfigurationError, match=f"postgresql {major}, not {other.major}"):
        other.start()


def test_an_unknown_major_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no embedded postgresql 9"):
        EmbeddedPostgres(tmp_path, major=9)


def test_a_missing_wheel_is_an_error_that_says_what_to_install(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"run: pip install 'holdfast-jobs\[embedded\]' or set HOLDFAST_DSN"):
        server.start()


def test_a_failed_start_shows_the_servers_log_and_leaves_no_user(server: EmbeddedPostgres) -> None:
    server.start()
    server.release()
    broken = EmbeddedPostgres(server.path, settings={"shared_buffers": "plenty"})
    with pytest.raises(ConfigurationError, match=r'(?s)did not start.*invalid value.*"shared_buffers": "plenty"'):
        broken.start()
    server.start()
    server.release()
    assert server.pid is None


def test_a_folder_with_other_uses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="has other uses"):
        open_embedded("embedded:.")


def test_nothing_is_printed(server: EmbeddedPostgres) -> None:
    done = run_python(
        "import sys; from holdfast.store.dev.embedded import *; open_embedded(sys.argv[1])", f"embedded:{server.path}"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert server.pid is None
    assert server.data.exists()


def reads(user: str, file: Path) -> bool:
    done = subprocess.run(["cat", str(file)], user=user, group=user, extra_groups=[], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not IS_ROOT, reason="needs root")
def test_root_lets_only_the_servers_account_search_the_parents(tmp_path: Path) -> None:
    private, project = tmp_path / "private", tmp_path / "private" / "project"
    project.mkdir(parents=True)
    (project / "notes").write_text("secret")
    for folder in (project, private):
        folder.chmod(0o700)
    with EmbeddedPostgres(project / "pg") as server:
        assert server.data.owner() == server.path.owner() != "root"
        for folder in (private, project):
            assert stat.S_IMODE(folder.stat().st_mode) & 0o067 == 0
            assert folder.owner() == "root"
        assert not reads("daemon", project / "notes")
    with EmbeddedPostgres(project / "pg"):
        pass


@pytest.mark.skipif(not IS_ROOT, reason="needs root")
def test_root_refuses_a_folder_that_it_could_open_to_everybody_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    private.chmod(0o700)

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    with pytest.raises(ConfigurationError, match=rf"may not enter {tmp_path}.* \(.*not supported\); use another"):
        EmbeddedPostgres(private / "pg").start()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.skipif(not IS_ROOT, reason="needs root")
def test_an_access_control_list_keeps_its_earlier_entries(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o750)
    first, second = pwd.getpwnam("daemon"), pwd.getpwnam("nobody")
    for account in (first, second, first):
        access.allow_search(folder, account)
    assert access.read_acl(folder) == {
        (1, NO_ID): 7,
        (2, first.pw_uid): 1,
        (2, second.pw_uid): 1,
        (4, NO_ID): 5,
        (16, NO_ID): 5,
        (32, NO_ID): 0,
    }
    folder.chmod(0o700)  # denies all of them
    access.allow_search(folder, first)
    assert access.read_acl(folder) == {
        (1, NO_ID): 7,
        (2, first.pw_uid): 1,
        (2, second.pw_uid): 0,
        (4, NO_ID): 0,
        (16, NO_ID): 1,
        (32, NO_ID): 0,
    }


@pytest.mark.skipif(not IS_ROOT, reason="needs root")
def test_root_runs_the_server_as_the_owner_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    shutil.chown(tmp_path / "pg", "nobody")
    with EmbeddedPostgres(tmp_path / "pg") as server:
        assert server.data.owner() == "nobody"
        assert (server.path / "users.lock").owner() == "nobody"


@pytest.mark.skipif(not IS_ROOT, reason="needs root to become another user")
def test_an_unprivileged_user_runs_the_server_as_itself() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.chown(folder, "nobody")
        done = run_python(UNPRIVILEGED, f"{folder}/pg")
    assert (done.returncode, done.stderr) == (0, "")
    if not done.stdout:
        pytest.skip("this Python environment is not readable for the user nobody")
    assert done.stdout == "nobody True\n"
