"""A tiny Django project on the tests' own database. Django can be set up once for each process, so this is the one."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from holdfast import Retry

BACKEND = "holdfast.django.HoldfastBackend"


def set_up(dsn: str) -> None:
    """Set Django up; the second call does nothing."""
    if settings.configured:
        return
    from holdfast.django.framework import Task

    framework = Task.__module__.removesuffix(".base")  # Django's own, or the backport
    settings.configure(
        DATABASES={"default": database(dsn), "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["shop", "holdfast.django", *(["django_tasks"] if framework == "django_tasks" else [])],
        TASKS={
            "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"]},
            "patient": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"retry": Retry.fixed(0, max_attempts=3)}},
            "apart": {"BACKEND": BACKEND, "OPTIONS": {"database": None, "dsn": dsn}},
            "immediate": {"BACKEND": f"{framework}.backends.immediate.ImmediateBackend"},
        },
        USE_TZ=True,
        TIME_ZONE="Europe/Vienna",
        LOGGING_CONFIG=None,  # pytest's own handlers stay in place
    )
    import django

    django.setup()


def database(dsn: str) -> dict[str, Any]:
    """Return an entry of DATABASES for a DSN."""
    given = conninfo_to_dict(dsn)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    entry: dict[str, Any] = {ours: given.get(libpq, "") for ours, libpq in names.items()}
    return entry | {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"application_name": "django site"}}
