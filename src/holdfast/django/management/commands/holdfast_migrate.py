"""`manage.py holdfast_migrate`: update Holdfast's schema to this release."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from holdfast.django.project import app
from holdfast.errors import HoldfastError


class Command(BaseCommand):
    """`holdfast migrate` for a backend of TASKS."""

    help = "Creates or updates Holdfast's schema in the database of a backend of TASKS."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", default="default", help="alias of the backend in TASKS")

    def handle(self, *, backend: str, **options: Any) -> None:
        try:
            hf = app(backend)
            result = hf.migrate()
        except HoldfastError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"schema {hf.settings.schema} is at version {result.version}")
