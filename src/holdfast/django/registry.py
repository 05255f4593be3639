"""The Django tasks of this process, by the path of their function: all that jobs may run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.apps import apps
from django.utils.module_loading import autodiscover_modules

from holdfast.django.framework import Task

_known: dict[str, Task] = {}


def remember(task: Task) -> None:
    """Keeps a task; a variant of one already known changes nothing."""
    path = task.module_path
    if path not in _known or _known[path].func is not task.func:
        _known[path] = task


def collect(options: Mapping[str, Any]) -> dict[str, Task]:
    """Every task, once the modules that define tasks are imported: `tasks` of each installed app, and those named in
    OPTIONS."""
    names = list(options.get("TASK_MODULES", ()))
    if options.get("AUTODISCOVER", True):
        autodiscover_modules("tasks")
        names += [f"{config.name}.tasks" for config in apps.get_app_configs()]
    for name in options.get("TASK_MODULES", ()):
        import_module(name)
    for module in filter(None, map(sys.modules.get, names)):
        for found in list(
            vars(module).values()
        ):  # also those of another backend, which using(backend=...) may bring here
            if isinstance(found, Task):
                remember(found)
    return _known


def find(path: str, options: Mapping[str, Any]) -> Task | None:
    """A task by its path; the modules are imported only when it is not known yet."""
    return _known.get(path) or collect(options).get(path)
