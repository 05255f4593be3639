"""What `"holdfast.django"` in INSTALLED_APPS brings: the management commands, the checks of TASKS, and the schema with
`manage.py migrate`."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class HoldfastConfig(AppConfig):
    """Under a label of its own: the package's last name is Django's."""

    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Has every backend of TASKS checked: the backport does so only as an installed app."""
        from holdfast.django.framework import FRAMEWORK
        from holdfast.django.schema import set_up

        import_module(f"{FRAMEWORK}.checks")
        post_migrate.connect(set_up, sender=self)
