"""Holdfast's schema in Django's databases: `manage.py migrate` sets it up, and so do test databases."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from holdfast.cli.migrate import look
from holdfast.django.backend import HoldfastBackend
from holdfast.django.framework import task_backends
from holdfast.errors import HoldfastError
from holdfast.store.migrate import migrate


def set_up(using: str, **_: Any) -> None:
    """Bring the schema of every backend that enqueues in this database to this release; a receiver of post_migrate."""
    done = set()
    for alias in task_backends:
        backend = task_backends[alias]
        if not isinstance(backend, HoldfastBackend) or not backend.migrates(using):
            continue
        settings = backend.settings_in(connections[using])
        if settings.schema in done:
            continue
        done.add(settings.schema)
        try:
            if not look(settings).up_to_date:
                migrate(settings)
        except HoldfastError as error:
            raise CommandError(
                f"{error} (to leave it to `manage.py holdfast_migrate`, set TASKS[{alias!r}]['OPTIONS']['MIGRATE'] "
                "to False)"
            ) from error
