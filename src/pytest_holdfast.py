"""The pytest plugin of holdfast.testing. It is outside of the package, because pytest imports it in every run: Holdfast
itself is imported only when a test uses one of these fixtures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing import Databases, Kit

_guarded = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("holdfast_app", "the application that tests bind, as MODULE:ATTRIBUTE", default="")
    parser.addini(
        "holdfast_isolation",
        "how each test gets its database: 'empty' empties the tables of one, 'copy' copies a template",
        default="empty",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Block the configured application's access to its own database: tests use the kit's, or none."""
    target = item.config.getini("holdfast_app")
    if target and not item.config.stash.get(_guarded, False) and target.partition(":")[0] in sys.modules:
        from holdfast.testing.bind import forbid

        item.config.stash[_guarded] = True
        forbid(_load(target), target)


@pytest.fixture(scope="session")
def holdfast_app(pytestconfig: pytest.Config) -> Holdfast:
    """Return the application under test. Override it if no setting can name the application."""
    target = pytestconfig.getini("holdfast_app")
    if not target:
        raise pytest.UsageError(
            'no application to test: set holdfast_app = "MODULE:ATTRIBUTE" in pytest\'s settings, or override the '
            "fixture holdfast_app"
        )
    return _load(target)


@pytest.fixture(scope="session")
def holdfast_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the DSN of the server for test databases: HOLDFAST_TEST_DSN, or an embedded one in pytest's cache."""
    from holdfast.testing import scratch_server

    with scratch_server(_folder(pytestconfig, tmp_path_factory)) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def holdfast_template(pytestconfig: pytest.Config, holdfast_server: str) -> Iterator[str]:
    """Yield the DSN of this process's migrated database. Override it, with itself as argument, to add your tables."""
    from holdfast.testing import scratch_database

    with scratch_database(holdfast_server, _schema(pytestconfig)) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def holdfast_databases() -> Iterator[Databases]:
    """Yield the connections that are kept from one test to the next."""
    from holdfast.testing import Databases

    with Databases() as databases:
        yield databases


@pytest.fixture
def holdfast_database(
    pytestconfig: pytest.Config, holdfast_server: str, holdfast_template: str, holdfast_databases: Databases
) -> Iterator[str]:
    """Yield the DSN of the test's database. Override it to use an existing one: its name must contain "test", and only
    Holdfast's tables are emptied."""
    isolation = pytestconfig.getini("holdfast_isolation")
    if isolation == "empty":
        yield holdfast_databases.made(holdfast_template)
    elif isolation == "copy":
        with holdfast_databases.copied(holdfast_server, holdfast_template, _schema(pytestconfig)) as dsn:
            yield dsn
    else:
        raise pytest.UsageError(f"holdfast_isolation must be 'empty' or 'copy', got {isolation!r}")


@pytest.fixture
def holdfast_kit(holdfast_app: Holdfast, holdfast_database: str, holdfast_databases: Databases) -> Iterator[Kit]:
    """Yield the kit: the application bound to the test's empty database."""
    from holdfast.testing import bind

    with bind(holdfast_app, holdfast_database, holdfast_databases) as kit:
        yield kit


def _folder(config: pytest.Config, temporary: pytest.TempPathFactory) -> Path:
    """Return the folder of the embedded server. It outlives the run, because creating it takes a second."""
    try:
        return Path(config.cache.mkdir("holdfast")) / "postgresql"
    except (AttributeError, OSError):  # no cache plugin, or nowhere to write
        return temporary.mktemp("holdfast") / "postgresql"


def _schema(config: pytest.Config) -> str:
    from holdfast.settings import Settings

    target = config.getini("holdfast_app")
    return (_load(target).settings if target else Settings.load()).schema


def _load(target: str) -> Holdfast:
    import pkgutil

    from holdfast import Holdfast

    try:
        app = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"holdfast_app = {target!r} in pytest's settings cannot be found: {error}") from error
    if not isinstance(app, Holdfast):
        raise pytest.UsageError(
            f"holdfast_app = {target!r} is of type {type(app).__name__}, not a Holdfast application"
        )
    return app
