"""Django's tasks on Holdfast: the backend for TASKS, and the application that workers run."""

from holdfast.django.backend import HoldfastBackend
from holdfast.django.project import app

__all__ = ["HoldfastBackend", "app"]
