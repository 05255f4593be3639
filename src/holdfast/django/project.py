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
    """The tasks of this Django project, as the backend of this alias in TASKS runs them. Sets Django up if needed."""
    try:
        if not apps.ready:
            django.setup()
        found = task_backends[backend]
    except ImproperlyConfigured as error:
        raise ConfigurationError(f"Django is not set up for tasks: {error}") from error
    if not isinstance(found, HoldfastBackend):
        raise ConfigurationError(
            f"TASKS[{backend!r}] is a {type(found).__qualname__}; give it the BACKEND 'holdfast.django.HoldfastBackend'"
        )
    for task in list(registry.collect(found.options).values()):
        found.register(task)
    return found.hf
