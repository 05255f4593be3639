"""The source distribution: it builds, and its own tests pass where it is unpacked, without git."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.settings import VERSION
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a source distribution that was built and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    run(ROOT, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder))
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def run(folder: Path, *command: str) -> str:
    env = os.environ | {"PYTHONPATH": str(folder / "src")}
    env.pop("PYTEST_DEBUG_TEMPROOT", None)  # each checkout has a root of its own
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_has_everything_that_the_checkout_tests_with(unpacked: Path) -> None:
    assert unpacked.name == f"holdfast_jobs-{VERSION}"
    names = {each.name for each in unpacked.iterdir()}
    assert {
        "src",
        "tests",
        "bench",
        "tools",
        "examples",
        "docs",
        "deploy",
        "requirements",
        "conftest.py",
        "Makefile",
    } <= names
    assert (unpacked / "src" / "holdfast" / "sql" / "migrations" / "0001_engine.sql").exists()
    assert (unpacked / "src" / "holdfast" / "py.typed").exists()


@pytest.mark.timeout(300)  # 15 s of CPU time
def test_its_unit_tests_pass_where_it_is_unpacked(unpacked: Path) -> None:
    where = run(unpacked, "-c", "import holdfast; print(holdfast.__file__)")
    assert Path(where.strip()).is_relative_to(unpacked)
    ended = run(unpacked, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "tests/unit")
    assert re.search(r"\d{3,} passed", ended) and "skipped" not in ended.splitlines()[-1]
