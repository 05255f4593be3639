"""The application that workers run: `hf = holdfast.django.app()`."""

from __future__ import annotations

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from holdfast.client import Holdfast
from holdfast.django import registry
from holdfast.django.backend import HoldfastBackend
from holdfast.django.framework import task_backends
from holdfast.errors import ConfigurationError


def app(backend: str = "default") -> Holdfast:
    """Return the application with this project's tasks, for this backend of TASKS. Sets Django up if needed."""
    try:
        if not apps.ready:
            django.setup()
        instance = task_backends[backend]
    except ImproperlyConfigured as error:
        raise ConfigurationError(f"Django is not set up for tasks: {error}") from error
    if not isinstance(instance, HoldfastBackend):
        raise ConfigurationError(
            f"TASKS[{backend!r}] is a {type(instance).__qualname__}; set its BACKEND to "
            "'holdfast.django.HoldfastBackend'"
        )
    for task in list(registry.collect(instance.options).values()):
        instance.register(task)
    return instance.hf
