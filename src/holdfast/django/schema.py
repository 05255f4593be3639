"""Holdfast's schema in Django's databases, created by `manage.py migrate` and in test databases."""

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
    """Update the schema of every backend that uses this database; a receiver of post_migrate."""
    schemas = set()
    for alias in task_backends:
        backend = task_backends[alias]
        if not isinstance(backend, HoldfastBackend) or not backend.migrates(using):
            continue
        settings = backend.settings_in(connections[using])
        if settings.schema in schemas:
            continue
        schemas.add(settings.schema)
        try:
            if not look(settings).up_to_date:
                migrate(settings)
        except HoldfastError as error:
            raise CommandError(
                f"{error} (to use `manage.py holdfast_migrate` instead, set TASKS[{alias!r}]['OPTIONS']['MIGRATE'] "
                "to False)"
            ) from error
