"""The systemd units: systemd accepts them, they are hardened, and what they start reports as they expect."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.conftest import ROOT
from tests.support.commands import problem
from tests.support.manager import manager
from tests.support.program import started

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
INSTALLED = "/srv/holdfast/venv/bin/holdfast"
HERE = str(Path(sys.executable).parent / "holdfast")
MOST_EXPOSED = 2.0  # of 10, as `systemd-analyze security` counts
APP = "from holdfast import Holdfast\nhf = Holdfast()\n"
HARDENED = {
    "NoNewPrivileges": "true",
    "ProtectSystem": "strict",
    "ProtectHome": "true",
    "PrivateTmp": "true",
    "PrivateDevices": "true",
    "RestrictSUIDSGID": "true",
    "CapabilityBoundingSet": "",
    "SystemCallFilter": "@system-service",
}


def unit(name: str) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(ROOT / "deploy" / "systemd" / f"holdfast-{name}.service")
    return parsed


def service(name: str) -> Mapping[str, str]:
    return unit(name)["Service"]


def test_there_are_units_for_worker_service_and_schema() -> None:
    assert [each.stem for each in UNITS] == ["holdfast-migrate", "holdfast-serve", "holdfast-worker"]
    assert [service(name)["Type"] for name in ("migrate", "serve", "worker")] == ["oneshot", "notify", "notify"]


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
def test_a_units_command_exists(name: str) -> None:
    program, *arguments = shlex.split(service(name)["ExecStart"])
    assert program == INSTALLED and arguments[0] == name and problem(arguments) is None


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
def test_a_unit_is_hardened(name: str) -> None:
    assert HARDENED.items() <= dict(service(name)).items()
    assert service(name)["User"] == ("holdfast_owner" if name == "migrate" else "holdfast")


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_the_times_of_a_unit_fit_the_settings(name: str) -> None:
    defaults = Settings()
    assert float(service(name)["TimeoutStopSec"]) > defaults.grace + defaults.call_timeout
    assert float(service(name)["WatchdogSec"]) > defaults.loop_timeout, "a stuck worker names its handler first"
    assert service(name)["RestartPreventExitStatus"] == "2" and service(name)["Restart"] == "on-failure"


def test_systemd_signals_a_worker_once() -> None:
    assert service("worker")["KillMode"] == "mixed", "a second SIGTERM would cancel its jobs"


@pytest.fixture
def analyze(tmp_path: Path) -> Path:
    """Return a folder with the units, of which the program exists."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NO SYSTEMD-ANALYZE: the units are not verified")
    for each in UNITS:
        text = each.read_text().replace(INSTALLED, HERE)
        (tmp_path / each.name).write_text(re.sub("^(User|Group)=.*", r"\1=root", text, flags=re.M))
    return tmp_path


def test_systemd_accepts_the_units(analyze: Path) -> None:
    files = [str(analyze / each.name) for each in UNITS]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "holdfast" in line]
    assert done.returncode == 0 and said == [], done.stderr


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
def test_systemd_counts_a_unit_as_hardly_exposed(analyze: Path, name: str) -> None:
    file = str(ROOT / "deploy" / "systemd" / f"holdfast-{name}.service")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= MOST_EXPOSED, done.stdout


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_what_a_unit_starts_reports_to_it(hf: Holdfast, dsn: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    _, *arguments = shlex.split(service(name)["ExecStart"].replace("--port 8000", "--port 0"))
    with manager() as systemd:
        reports = systemd.environment(float(service(name)["WatchdogSec"]) / 30)
        with started(dsn, *arguments, folder=tmp_path, command=[HERE], **reports) as program:
            systemd.until("READY=1")
            systemd.until("WATCHDOG=1")
            systemd.until("WATCHDOG=1")
            program.process.send_signal(signal.SIGTERM)
            systemd.until("STOPPING=1")
            assert program.ended() in (0, -signal.SIGTERM)


def test_the_unit_of_the_schema_migrates(dsn: str, tmp_path: Path) -> None:
    _, *arguments = shlex.split(service("migrate")["ExecStart"])
    with started(dsn, *arguments, folder=tmp_path, command=[HERE]) as program:
        assert program.ended() == 0, program.output
