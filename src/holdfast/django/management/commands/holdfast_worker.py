"""`manage.py holdfast_worker`: run this project's tasks."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from holdfast.cli import main


class Command(BaseCommand):
    """`holdfast worker` for a backend of TASKS."""

    help = "Runs the tasks of a Holdfast backend until stopped. Every HOLDFAST_* setting applies."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backend", default="default", help="alias of the backend in TASKS")
        parser.add_argument("--queues", help="queues to serve, separated by commas; default: the backend's QUEUES")
        parser.add_argument("--concurrency", type=int, help="tasks to run at once in each process")
        parser.add_argument("--processes", type=int, help="keep this many processes running")

    def handle(self, *, backend: str, **options: Any) -> None:
        names = [name for name in ("queues", "concurrency", "processes") if options[name]]
        main(["worker", f"holdfast.django.worker:{backend}", *(f"--{name}={options[name]}" for name in names)])
