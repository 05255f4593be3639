"""Copies of an embedded server, for tests that promote or restore one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.store.dev.embedded import EmbeddedPostgres
from tests.conftest import IN_MEMORY

ARCHIVE = {"archive_mode": "on", "wal_level": "replica"}


def server(folder: Path, major: int = 18, **settings: str) -> EmbeddedPostgres:
    return EmbeddedPostgres(folder, major=major, settings={**IN_MEMORY, **settings})


def run(of: EmbeddedPostgres, program: str, *arguments: str) -> None:
    """Run one of the server's programs, as its account."""
    done = of._run(program, *arguments)
    assert not done.returncode, done.stdout


def copy(primary: EmbeddedPostgres, to: EmbeddedPostgres, *options: str) -> None:
    """Copy a running server's data folder."""
    to._make_folder()
    dsn = primary.dsn("postgres")
    run(primary, "pg_basebackup", f"--dbname={dsn}", f"--pgdata={to.data}", "--checkpoint=fast", *options)


def follow(primary: EmbeddedPostgres, folder: Path, major: int = 18) -> EmbeddedPostgres:
    """Return a standby of a running server, not started yet."""
    standby = server(folder, major)
    copy(primary, standby, "--write-recovery-conf", "--wal-method=stream")
    return standby


@contextmanager
def launched(standby: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Run a server for the length of a block: one that recovers cannot be asked for its database."""
    standby._make_folder()
    standby._launch()
    try:
        yield standby
    finally:
        standby.stop("immediate")


def append(server: EmbeddedPostgres, **settings: str) -> None:
    """Change settings in the data folder."""
    file = server.data / "postgresql.auto.conf"
    owner = file.stat()
    with file.open("a") as config:
        config.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    os.chown(file, owner.st_uid, owner.st_gid)
