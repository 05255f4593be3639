"""The pytest plugin of holdfast.testing. It stands beside the package, because pytest imports it in every run: nothing
of Holdfast is imported before a test asks for one of these fixtures."""

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
        "how each test gets its database: 'empty' empties the tables of one, 'copy' makes a copy of a template",
        default="empty",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The application named in the settings is kept from its own database: a test has the kit's, or none."""
    target = item.config.getini("holdfast_app")
    if target and not item.config.stash.get(_guarded, False) and target.partition(":")[0] in sys.modules:
        from holdfast.testing.bind import forbid

        item.config.stash[_guarded] = True
        forbid(_load(target), target)


@pytest.fixture(scope="session")
def holdfast_app(pytestconfig: pytest.Config) -> Holdfast:
    """The application under test. Override it where no setting can name it."""
    target = pytestconfig.getini("holdfast_app")
    if not target:
        raise pytest.UsageError(
            'which application? Set holdfast_app = "MODULE:ATTRIBUTE" in pytest\'s settings, or override the fixture '
            "holdfast_app"
        )
    return _load(target)


@pytest.fixture(scope="session")
def holdfast_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server that databases are made on: HOLDFAST_TEST_DSN, or an embedded one in pytest's cache folder."""
    from holdfast.testing import scratch_server

    with scratch_server(_folder(pytestconfig, tmp_path_factory)) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def holdfast_template(pytestconfig: pytest.Config, holdfast_server: str) -> Iterator[str]:
    """The DSN of this process's database, migrated. Override it, asking for this one, to add tables of your own."""
    from holdfast.testing import scratch_database

    with scratch_database(holdfast_server, _schema(pytestconfig)) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def holdfast_databases() -> Iterator[Databases]:
    """What is kept open from one test to the next."""
    from holdfast.testing import Databases

    with Databases() as opened:
        yield opened


@pytest.fixture
def holdfast_database(
    pytestconfig: pytest.Config, holdfast_server: str, holdfast_template: str, holdfast_databases: Databases
) -> Iterator[str]:
    """The DSN of the test's database. Override it to use one that something else has made; its name must contain
    "test", and of its tables only Holdfast's are emptied."""
    isolation = pytestconfig.getini("holdfast_isolation")
    if isolation == "empty":
        yield holdfast_databases.made(holdfast_template)
    elif isolation == "copy":
        with holdfast_databases.copied(holdfast_server, holdfast_template, _schema(pytestconfig)) as dsn:
            yield dsn
    else:
        raise pytest.UsageError(f"holdfast_isolation is 'empty' or 'copy', got {isolation!r}")


@pytest.fixture
def holdfast_kit(holdfast_app: Holdfast, holdfast_database: str, holdfast_databases: Databases) -> Iterator[Kit]:
    """The kit: the application bound to the test's database, which is empty."""
    from holdfast.testing import bind

    with bind(holdfast_app, holdfast_database, holdfast_databases) as kit:
        yield kit


def _folder(config: pytest.Config, temporary: pytest.TempPathFactory) -> Path:
    """Where the embedded server keeps its files: making them anew takes a second, so they outlive the run."""
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
        found = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"holdfast_app = {target!r} in pytest's settings cannot be found: {error}") from error
    if not isinstance(found, Holdfast):
        raise pytest.UsageError(
            f"holdfast_app = {target!r} is of type {type(found).__name__}, not a Holdfast application"
        )
    return found
