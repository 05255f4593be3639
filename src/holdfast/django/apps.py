"""What `"holdfast.django"` in INSTALLED_APPS brings: the management commands, and the checks of TASKS."""

from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig


class HoldfastConfig(AppConfig):
    """Under a label of its own: the package's last name is Django's."""

    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Has every backend of TASKS checked: the backport does so only as an installed app."""
        from holdfast.django.framework import FRAMEWORK

        import_module(f"{FRAMEWORK}.checks")
