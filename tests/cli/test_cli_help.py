"""`holdfast --help` and `--version`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast as package
from tests.support.program import holdfast

COMMANDS = [
    [],
    ["demo"],
    ["dev"],
    ["worker"],
    ["serve"],
    ["migrate"],
    ["bench"],
    ["doctor"],
    ["jobs"],
    ["jobs", "show"],
    ["jobs", "retry"],
    ["jobs", "discard"],
    ["jobs", "cancel"],
    ["jobs", "prioritize"],
    ["jobs", "move"],
    ["jobs", "reschedule"],
    ["jobs", "edit"],
    ["jobs", "enqueue"],
    ["jobs", "queues"],
    ["jobs", "wanted"],
    ["workers"],
    ["workers", "stop"],
    ["batches"],
    ["batches", "show"],
    ["batches", "cancel"],
    ["batches", "watch"],
    ["dead"],
    ["dead", "show"],
    ["dead", "retry"],
    ["dead", "discard"],
    ["dead", "blocks"],
    ["dead", "unblock"],
    ["errors"],
    ["errors", "show"],
    ["errors", "retry"],
    ["errors", "discard"],
    ["actions"],
    ["actions", "show"],
    ["actions", "abort"],
    ["actions", "watch"],
    ["audit"],
    ["outbox"],
    ["outbox", "show"],
    ["outbox", "retry"],
    ["webhooks"],
    ["webhooks", "list"],
    ["webhooks", "add"],
    ["webhooks", "show"],
    ["webhooks", "rotate"],
    ["webhooks", "test"],
    ["webhooks", "deliveries"],
    ["webhooks", "delivery"],
    ["webhooks", "redeliver"],
    ["webhooks", "enable"],
    ["webhooks", "disable"],
    ["webhooks", "remove"],
    ["webhooks", "key"],
    ["schedules"],
    ["schedules", "list"],
    ["schedules", "pause"],
    ["schedules", "resume"],
    ["schedules", "run"],
    ["schedules", "remove"],
    ["import-beat"],
    ["why"],
    ["pause"],
    ["resume"],
    ["drain"],
    ["top"],
    ["tokens"],
    ["tokens", "list"],
    ["tokens", "create"],
    ["tokens", "revoke"],
    ["limits"],
    ["limits", "show"],
    ["limits", "set"],
    ["limits", "clear"],
    ["limits", "reset"],
    ["limits", "rules"],
    ["limits", "reconcile"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_purpose_and_an_example(command: list[str]) -> None:
    result = holdfast("", *command, "--help")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: root {' '.join(command)}".rstrip())
    assert lines[1][0].isupper()
    assert any(line.startswith(f"Example: holdfast {' '.join(command)}".rstrip()) for line in lines)
    assert "<bool>" not in result.stdout and "--help" in result.stdout


def test_the_version_is_printed() -> None:
    assert holdfast("", "--version").stdout == f"holdfast {package.__version__}\n"


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in holdfast("", "--help").stdout


def test_a_mistyped_command_gets_a_suggestion() -> None:
    result = holdfast("", "doktor")
    assert result.exit_code == 2
    assert "doctor" in result.stderr


def test_help_loads_neither_the_worker_nor_extras() -> None:
    heavy = "'holdfast.worker', 'holdfast.bench', 'uvloop', 'watchfiles', 'holdfast.store.dev.embedded'"
    code = f"import sys, holdfast.cli.app; print([m for m in ({heavy}) if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
