"""A Django project with Holdfast: options, checks and management commands."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections
from django.test.utils import override_settings
from django.utils import timezone
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import ConfigurationError, Holdfast, Retry
from holdfast.django import app, framework
from tests.conftest import DATABASE, drop_database
from tests.support import django_site
from tests.support.shop_site import FRAMEWORK, Sql, finished, shop_fixture, working  # noqa: F401 - fixture

ROOT = Path(__file__).parent.parent.parent
PATH = os.pathsep.join([str(ROOT / "tests/support/apps"), str(ROOT / "src")])
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def project(folder: Path, database: dict[str, Any], tasks: dict[str, Any], *command: str) -> list[str]:
    """Write a new project and return a function that runs its commands."""
    (folder / "site_settings.py").write_text(
        f"DATABASES = {{'default': {database!r}}}\nTASKS = {tasks!r}\nUSE_TZ = True\nSECRET_KEY = 'x'\n"
        "INSTALLED_APPS = ['shop', 'holdfast.django']\n"
    )
    (folder / "manage.py").write_text(
        "import os, sys\nfrom django.core.management import execute_from_command_line\n"
        "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_settings')\nexecute_from_command_line(sys.argv)\n"
    )
    return [sys.executable, "manage.py", *command]


def manage(
    folder: Path, database: dict[str, Any], command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of a project to its end."""
    tasks = {
        "default": {"BACKEND": django_site.BACKEND, "QUEUES": ["default", "mail"]},
        "immediate": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend"},
    }
    return subprocess.run(
        project(folder, database, tasks, command),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PATH} | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_workers_application_has_every_task_of_the_project(shop: Any) -> None:
    hf = app()
    assert {"shop.tasks.add", "shop.tasks.greet", "shop.tasks.on_another_backend"} <= hf.registry.tasks.keys()
    assert "shop.tasks.not_a_task" not in hf.registry.tasks
    assert hf.settings.queue_list == ["default", "mail"]
    assert conninfo_to_dict(hf.settings.dsn)["dbname"] == settings.DATABASES["default"]["NAME"]
    assert app() is hf
    with pytest.raises(ConfigurationError, match=r"TASKS\['immediate'\] is a ImmediateBackend"):
        app("immediate")
    with pytest.raises(ConfigurationError, match="The connection 'nowhere' doesn't exist"):
        app("nowhere")


def test_modules_named_in_the_options_are_imported(shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outlying.py").write_text(
        f"from {FRAMEWORK} import task\n@task(backend='patient')\ndef far() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"TASK_MODULES": ["outlying"], "AUTODISCOVER": False}
    changed = settings.TASKS | {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=changed):
        assert "outlying.far" in app().registry.tasks


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lease": 120, "schema": "holdfast", "retry": Retry.fixed(1), "timeout": 5}, []),
        ({"laese": 30}, ["holdfast.E001"]),
        ({"lease": -1}, ["holdfast.E001"]),
        ({"lease": "long"}, ["holdfast.E001"]),
        ({"retry": 3}, ["holdfast.E001"]),
        ({"database": "nowhere"}, ["holdfast.E001"]),
        ({"database": "nowhere", "dsn": "postgresql://127.0.0.1/x"}, ["holdfast.E001"]),
        ({"database": "sqlite"}, ["holdfast.E002"]),
        ({"database": None}, ["holdfast.E002"]),
        ({"database": "sqlite", "dsn": "postgresql://127.0.0.1/x"}, ["holdfast.W001"]),
        ({"database": None, "dsn": "postgresql://127.0.0.1/x"}, []),
    ],
)
def test_manage_py_check_judges_the_options(shop: Any, options: dict[str, Any], expected: list[str]) -> None:
    changed = {"default": {"BACKEND": django_site.BACKEND, "OPTIONS": options}}
    with override_settings(TASKS=changed):
        assert [message.id for message in run_checks()] == expected


def test_without_time_zones_times_are_local_ones(shop: Any) -> None:
    with override_settings(USE_TZ=False):
        connections.close_all()
        for backend in ("default", "apart"):
            at = timezone.make_naive(datetime.now(UTC) + timedelta(seconds=0.2))
            result = shop.add.using(run_after=at, backend=backend).enqueue(1)
            assert shop.add.using(backend=backend).get_result(result.id) == result
            with working():
                finished(result)
            assert result.enqueued_at <= result.started_at <= result.finished_at
            assert result.started_at.tzinfo is None
            assert result.started_at >= at
    connections.close_all()


def test_the_management_commands_migrate_and_run_a_project(shop: Any, dsn: str, tmp_path: Path, capsys: Any) -> None:
    call_command("holdfast_migrate")
    assert "schema holdfast is at version" in capsys.readouterr().out
    entry = django_site.database(dsn)
    tasks = {
        "default": {"BACKEND": django_site.BACKEND, "QUEUES": ["default", "mail"]},
        "immediate": {"BACKEND": f"{FRAMEWORK}.backends.immediate.ImmediateBackend"},
    }
    command = project(tmp_path, entry, tasks, "holdfast_worker", "--concurrency", "3", "--processes", "1")
    worker = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": PATH}, stderr=subprocess.PIPE)
    try:
        assert finished(shop.add.enqueue(1)).return_value == 3
        assert finished(shop.greet.enqueue("Ada")).return_value == "hello Ada"
    finally:
        worker.terminate()
        output = worker.communicate(timeout=30)[1].decode()
    assert worker.returncode == 0, output
    assert "concurrency=3" in output


SET_UP = """
import django, sys
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
from shop.tasks import add
name = connection.creation.create_test_db(verbosity=0)
try:
    with transaction.atomic():
        result = add.enqueue(1)
        assert add.get_result(result.id).status.name == "READY"
        from holdfast.django import app
        assert name in app().settings.dsn, app().settings.dsn
        app().close()
    print("enqueued in", name)
finally:
    connection.creation.destroy_test_db(sys.argv[1], verbosity=0)
"""


def test_django_sets_the_schema_up_with_migrate_and_in_test_databases(pg18: str, tmp_path: Path) -> None:
    with psycopg.connect(pg18, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE}_site")
        admin.execute(f"CREATE DATABASE {DATABASE}_site")
        dsn = make_conninfo(pg18, dbname=f"{DATABASE}_site")
        try:
            process = manage(tmp_path, django_site.database(dsn), "migrate")
            assert process.returncode == 0, process.stderr
            with psycopg.connect(dsn) as conn:
                assert conn.execute("SELECT count(*) > 0 FROM holdfast.schema_info").fetchone() == (True,)
            environment = os.environ | {"PYTHONPATH": PATH, "DJANGO_SETTINGS_MODULE": "site_settings"}
            ran = subprocess.run(
                [sys.executable, "-c", SET_UP, f"{DATABASE}_site"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert f"enqueued in test_{DATABASE}_site" in ran.stdout, ran.stderr
        finally:
            drop_database(pg18, f"{DATABASE}_site")


def test_migrate_leaves_other_databases_alone_and_says_why_it_cannot(tmp_path: Path, dsn: str, sql: Sql) -> None:
    process = manage(tmp_path, SQLITE, "migrate", HOLDFAST_DSN="postgresql://127.0.0.1:1/x")
    assert process.returncode == 0, process.stderr
    sql("drop role if exists hf_webuser")
    sql("create role hf_webuser login")
    try:
        sql("grant holdfast_reader to hf_webuser")
        sql("update schema_files set checksum = 'old' where name = 'functions/fail.sql'")
        entry = django_site.database(make_conninfo(dsn, user="hf_webuser"))
        process = manage(tmp_path, entry, "migrate")
        assert process.returncode == 1
        assert "may not set up schema 'holdfast'" in process.stderr
        assert "['OPTIONS']['MIGRATE'] to False" in process.stderr
    finally:
        sql("drop role hf_webuser")
        Holdfast(dsn).migrate()


def test_a_new_projects_sqlite_is_reported_although_nothing_else_is_installed(tmp_path: Path) -> None:
    process = manage(tmp_path, SQLITE, "check", HOLDFAST_DSN="postgresql://127.0.0.1:1/x")
    assert process.returncode == 0
    assert "(holdfast.W001) TASKS['default']: database 'default' is not PostgreSQL" in process.stderr
    process = manage(tmp_path, SQLITE, "check", HOLDFAST_DSN="")
    assert process.returncode == 1
    assert "(holdfast.E002) TASKS['default'] has no PostgreSQL database" in process.stderr


AWAY = django_site.database("host=127.0.0.1 port=1 dbname=x user=u")


@pytest.mark.parametrize(
    ("command", "database", "expected"),
    [
        ("holdfast_migrate", SQLITE, "has no PostgreSQL database"),
        ("holdfast_worker", SQLITE, "has no PostgreSQL database"),
        ("holdfast_migrate", AWAY, "CommandError: the database at"),  # a worker waits for its database instead
    ],
)
def test_a_command_without_its_database_says_so_in_a_line(
    tmp_path: Path, command: str, database: dict[str, Any], expected: str
) -> None:
    process = manage(tmp_path, database, command, HOLDFAST_DSN="")
    assert process.returncode == 1
    assert expected in process.stderr
    assert "Traceback" not in process.stderr


def test_the_framework_is_djangos_own_where_there_is_one() -> None:
    import django

    assert framework.Task.__module__ == ("django.tasks.base" if django.VERSION >= (6,) else "django_tasks.base")
