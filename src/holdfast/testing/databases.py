"""Test databases: a server, a database for this process, and the connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from holdfast.errors import ConfigurationError
from holdfast.settings import Settings
from holdfast.store.dev import scratch
from holdfast.store.dev.scratch import Scratch
from holdfast.store.migrate import migrate
from holdfast.store.wire.connect import server_dsn
from holdfast.testing.pools import KitSyncPool


@contextmanager
def scratch_server(folder: Path) -> Iterator[str]:
    """Yield the DSN of a server for test databases: HOLDFAST_TEST_DSN, or an embedded server whose files stay in the
    folder."""
    settings = Settings.load()
    if settings.test_dsn:
        refuse_production(settings.test_dsn, settings.dsn)
        yield server_dsn(settings.with_(dsn=settings.test_dsn))
        return
    from holdfast.store.dev.embedded import EmbeddedPostgres  # needs Unix

    server = EmbeddedPostgres(folder)
    try:
        server.start()
    except ConfigurationError as error:
        raise ConfigurationError(
            f"no server for the tests: {error}; set HOLDFAST_TEST_DSN to use another server"
        ) from error
    try:
        yield server.dsn("postgres")
    finally:
        server.release()


@contextmanager
def scratch_database(server: str, schema: str = "holdfast") -> Iterator[str]:
    """Create an empty, migrated database for this process and drop it when the block ends; yields its DSN."""
    with scratch.fresh_database(server) as dsn:
        migrate(Settings(dsn=dsn, schema=schema))
        yield dsn


def refuse_production(tests: str, production: str) -> None:
    """Raise ConfigurationError if the DSN for tests names the application's own database."""
    if production and scratch.same_database(tests, production) and "test" not in scratch.database_name(tests):
        raise ConfigurationError(
            "HOLDFAST_TEST_DSN names the same database as HOLDFAST_DSN; tests create their own databases, so name "
            "another server, or that server's database 'postgres'"
        )


class Databases:
    """Connections of tests, kept from one test to the next: connecting costs more than emptying tables."""

    def __init__(self) -> None:
        self._opened: dict[Settings, tuple[Scratch, KitSyncPool]] = {}
        self._made: set[str] = set()
        self._templates: set[str] = set()

    def made(self, dsn: str) -> str:
        """Mark a database as created for tests, so that all of its tables may be emptied."""
        self._made.add(dsn)
        return dsn

    @contextmanager
    def copied(self, server: str, template: str, schema: str) -> Iterator[str]:
        """Create a copy of a template and drop it when the block ends; yields its DSN."""
        if template not in self._templates:
            Scratch(Settings(dsn=template, schema=schema), whole=True).prepare()
            self._templates.add(template)
        with scratch.copied_database(server, template) as dsn:
            try:
                yield self.made(dsn)
            finally:
                self.close(dsn)

    def open(self, settings: Settings) -> tuple[Scratch, KitSyncPool]:
        """Return the database of these settings, and its pool."""
        if settings not in self._opened:
            self._opened[settings] = Scratch(settings, whole=settings.dsn in self._made), KitSyncPool(settings)
        return self._opened[settings]

    def close(self, dsn: str | None = None) -> None:
        """Close the connections to one database, or to all."""
        for settings in [each for each in self._opened if dsn in (None, each.dsn)]:
            database, pool = self._opened.pop(settings)
            database.close()
            pool.close()

    def __enter__(self) -> Databases:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
