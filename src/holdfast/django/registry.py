"""The Django tasks of this process, by the path of their function. Jobs can run no other function."""

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
    """Register a task, unless a variant of it is known."""
    path = task.module_path
    if path not in _known or _known[path].func is not task.func:
        _known[path] = task


def collect(options: Mapping[str, Any]) -> dict[str, Task]:
    """Import the modules that define tasks (`tasks` of each installed app, and those named in OPTIONS), and return all
    tasks."""
    names = list(options.get("TASK_MODULES", ()))
    if options.get("AUTODISCOVER", True):
        autodiscover_modules("tasks")
        names += [f"{config.name}.tasks" for config in apps.get_app_configs()]
    for name in options.get("TASK_MODULES", ()):
        import_module(name)
    for module in filter(None, map(sys.modules.get, names)):
        for member in list(vars(module).values()):  # other backends' too: using(backend=...) can enqueue them here
            if isinstance(member, Task):
                remember(member)
    return _known


def find(path: str, options: Mapping[str, Any]) -> Task | None:
    """Return a task by its path; import the task modules only if it is not known yet."""
    return _known.get(path) or collect(options).get(path)
