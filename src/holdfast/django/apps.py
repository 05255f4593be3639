"""The Django app: management commands, checks of TASKS, and the schema with `manage.py migrate`."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class HoldfastConfig(AppConfig):
    """Sets a label, because the default would be "django"."""

    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Register the checks of TASKS, which the backport does only as an installed app."""
        from holdfast.django.framework import FRAMEWORK
        from holdfast.django.schema import set_up

        import_module(f"{FRAMEWORK}.checks")
        post_migrate.connect(set_up, sender=self)
