"""Applications by alias, for the command line: `holdfast worker holdfast.django.worker:default`."""

from __future__ import annotations

from holdfast.client import Holdfast
from holdfast.django.project import app


def __getattr__(alias: str) -> Holdfast:
    if alias.startswith("_"):
        raise AttributeError(alias)
    return app(alias)
