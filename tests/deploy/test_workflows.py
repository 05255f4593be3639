"""The workflows use what exists and pin what is not ours; the bill of materials agrees with the lock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
if not WORKFLOWS:
    pytest.skip("NO WORKFLOWS: a source distribution has none", allow_module_level=True)


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for each in used:
        assert each.startswith("./.github/") or re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), (
            each
        )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_nothing_else_unless_a_job_says_so(path: Path) -> None:
    workflow = read(path.name)
    assert workflow["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert granted in ({}, {"publish": {"id-token": "write"}})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_make_targets_of_a_workflow_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    steps = [step for job in read(path.name)["jobs"].values() for step in job.get("steps", [])]
    runs = [step["run"] for step in steps if step.get("run", "").startswith("make ")]
    for run in runs:
        assert {word for word in run.split()[1:] if "=" not in word} <= targets, run
    assert all((ROOT / step["run"].split()[0]).exists() for step in steps if step.get("run", "").startswith("."))


def test_the_matrix_has_every_supported_version() -> None:
    matrix = read("ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == classifiers and matrix["postgres"] == ["15", "16", "17", "18"]


def test_a_release_is_published_only_by_a_tag_and_after_the_tests() -> None:
    release = read("release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    jobs = release["jobs"]
    assert jobs["publish"]["needs"] == "build" and jobs["build"]["needs"] == "ci"
    assert jobs["publish"]["environment"] == "release"
    assert "password" not in json.dumps(jobs), "trusted publishing needs none"


def test_the_bill_of_materials_agrees_with_the_lock(tmp_path: Path) -> None:
    target = tmp_path / "made" / "sbom.json"
    subprocess.run([sys.executable, ROOT / "tools" / "sbom.py", target], check=True, capture_output=True)
    bill = json.loads(target.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    lock = dict(re.findall(r"^([\w.-]+)==([\w.!+-]+)", (ROOT / "requirements" / "dev.txt").read_text(), re.M))
    components = {each["name"]: each for each in bill["components"]}
    assert {name: each["version"] for name, each in components.items()}.items() <= lock.items()
    required = {name for name, each in components.items() if each["scope"] == "required"}
    assert {"psycopg", "psycopg-pool", "msgspec", "typer", "rich", "cronsim"} <= required
    assert components["starlette"]["scope"] == "optional"
    assert not {"pytest", "ruff", "mypy", "django"} & components.keys(), "these only work on Holdfast"
    known = {each["bom-ref"] for each in [*bill["components"], bill["metadata"]["component"]]}
    references = {each["ref"] for each in bill["dependencies"]} | {
        each for one in bill["dependencies"] for each in one["dependsOn"]
    }
    assert references == known
