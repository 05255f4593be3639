"""Releases beside each other: the previous one from its kept wheel, and a later one made of this source."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, wait_until
from tests.support.workers import APPS

KEPT = ROOT / "tests" / "releases"
QUICK = {"LEASE": "2", "RENEW": "0.3", "UPKEEP": "0.2", "POLL": "0.1", "GRACE": "5"}
BAD = ("schema does not fit", "SchemaError", "does not exist", "cached plan", "cache lookup")


def kept_wheel() -> Path:
    """Return the wheel of the newest kept release, or skip."""
    wheels = sorted(KEPT.glob("*.whl"), key=lambda each: [int(part) for part in each.name.split("-")[1].split(".")])
    if not wheels:
        pytest.skip("NO RELEASE IS KEPT in tests/releases: make keep-release TAG=v0.1.0")
    return wheels[-1]


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a folder for PYTHONPATH, without its dependencies and without network."""
    options = ("-q", "--no-deps", "--no-index", "--target", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True, timeout=120)
    return folder


def make_release(folder: Path, changes: Mapping[str, Callable[[str], str]]) -> Path:
    """Copy this source into a folder for PYTHONPATH, with files of its SQL changed, added (from "") or removed ("")."""
    shutil.copytree(ROOT / "src" / "holdfast", folder / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    for name, change in changes.items():
        file = folder / "holdfast" / "sql" / name
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        after = change(before)
        assert after != before, f"{name} is as before: this release proves nothing"
        file.unlink() if not after else file.write_text(after, encoding="utf-8")
    return folder


def environment(release: Path, dsn: str) -> dict[str, str]:
    settings = {f"HOLDFAST_{name}": value for name, value in QUICK.items()}
    return os.environ | settings | {"HOLDFAST_DSN": dsn, "PYTHONPATH": f"{release}{os.pathsep}{APPS}"}


def source_of(release: Path) -> Path:
    """Return where a program of this release finds the package."""
    found = [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"]
    return Path(subprocess.check_output(found, env=environment(release, ""), text=True).strip())


def command(release: Path, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `holdfast` of a release to its end."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        env=environment(release, dsn),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


class Process:
    """A worker or an enqueuer of one release; an enqueuer's calls are in `notes`."""

    def __init__(self, role: str, release: Path, dsn: str, folder: Path, seed: int) -> None:
        self.role = role
        self.release = release
        self.log = folder / f"{role}-{release.name}-{seed}.log"
        self.notes = self.log.with_suffix(".notes")
        worker = ["-m", "holdfast.cli", "worker", "rolling:hf", "--all-queues"]
        arguments = worker if role == "worker" else [str(APPS / "rolling.py"), str(self.notes), str(seed)]
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, *arguments], env=environment(release, dsn), stdout=log, stderr=log, cwd=folder
            )

    def has_worked(self) -> bool:
        if self.role == "worker":
            return "worker started" in self.log.read_text()
        return self.notes.exists() and self.notes.read_text().count("ids") > 5


class Rolling:
    """Processes of two releases on one database, of which one after the other ends and is replaced."""

    def __init__(self, dsn: str, folder: Path, rng: random.Random) -> None:
        self._dsn = dsn
        self._folder = folder
        self._rng = rng
        self._ended: list[Process] = []
        self.running: list[Process] = []
        self.kills: Counter[str] = Counter()

    def start(self, role: str, release: Path) -> None:
        self.running.append(Process(role, release, self._dsn, self._folder, self._rng.randrange(10**6)))

    def replace(self, role: str, release: Path) -> None:
        """End a process that has worked, by kill -9 or SIGTERM, and start one of the given role and release."""
        chosen = self._rng.choice([each for each in self.running if each.role == role])
        wait_until(chosen.has_worked)
        time.sleep(self._rng.uniform(0, 0.3))
        number = self._rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        self._end(chosen, number)
        self.kills[f"{number.name} of {role} {chosen.release.name}"] += 1
        self.start(role, release)

    def stop(self, role: str) -> None:
        for each in [each for each in self.running if each.role == role]:
            wait_until(each.has_worked)
            self._end(each, signal.SIGTERM)

    def _end(self, process: Process, number: signal.Signals) -> None:
        self.running.remove(process)
        self._ended.append(process)
        assert process.popen.poll() is None, f"{process.role} ended by itself:\n{process.log.read_text()[-3000:]}"
        process.popen.send_signal(number)
        code = process.popen.wait(60)
        assert code == (0 if number is signal.SIGTERM else -number), process.log.read_text()[-3000:]

    def close(self) -> None:
        for each in self.running:
            each.popen.kill()
            each.popen.wait()

    def calls(self) -> list[dict[str, Any]]:
        """Return what the enqueuers noted; a last line may be cut off by a kill."""
        files = [each.notes for each in [*self.running, *self._ended] if each.notes.exists()]
        lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def accepted(self) -> list[str]:
        return [id_ for each in self.calls() for id_ in each.get("ids", ())]

    def errors(self) -> list[str]:
        """Return the errors that callers got, and what workers said of a schema that does not fit."""
        logs = [line for each in [*self.running, *self._ended] for line in each.log.read_text().splitlines()]
        raised = [each["error"] for each in self.calls() if "error" in each]
        return raised + [line for line in logs if any(word in line for word in BAD)]
