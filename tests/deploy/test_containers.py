"""The image, the compose file and the Kubernetes manifests fit the product: commands, settings, ports, grace."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.conftest import ROOT, wait_until
from tests.support.commands import SETTINGS, problem
from tests.support.program import environment, started

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yml"))
STORING = Settings().call_timeout  # seconds for results, after the jobs have had their grace
APP = """
from holdfast import Holdfast
hf = Holdfast()

@hf.task()
async def nothing() -> None: ...
"""


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> Iterator[tuple[str, Any]]:
    for path in MANIFESTS:
        for each in documents(path):
            if each["kind"] == kind:
                yield each["metadata"]["name"], each["spec"]


def pods() -> Iterator[tuple[str, Any]]:
    for kind in ("Deployment", "Job"):
        for name, spec in of_kind(kind):
            yield name.removeprefix("holdfast-"), spec["template"]["spec"]


PODS = dict(pods())


def container(name: str) -> Any:
    (only,) = PODS[name]["containers"]
    return only


def get(port: int, path: str) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5).status_code
    except httpx.TransportError:
        return 0


def test_every_file_of_yaml_parses() -> None:
    found = [path for path in DEPLOY.rglob("*.yml") if all(isinstance(each, Mapping) for each in documents(path))]
    assert len(found) == len(list(DEPLOY.rglob("*.y*ml"))) >= 9


def test_the_manifests_have_what_a_fleet_needs() -> None:
    kinds = sorted(each["kind"] for path in MANIFESTS for each in documents(path))
    assert kinds == ["Deployment"] * 2 + ["Job"] + ["PodDisruptionBudget"] * 2 + ["ScaledObject", "Service"]


@pytest.mark.parametrize("name", sorted(PODS))
def test_a_pods_command_exists(name: str) -> None:
    arguments = container(name)["args"]
    assert arguments[0] == name and problem(arguments) is None


@pytest.mark.parametrize("name", sorted(PODS))
def test_a_pod_has_least_rights(name: str) -> None:
    pod, inner = PODS[name], container(name)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    assert inner["allowPrivilegeEscalation"] is False and inner["capabilities"] == {"drop": ["ALL"]}
    assert inner["readOnlyRootFilesystem"] and "memory" in container(name)["resources"]["limits"]


@pytest.mark.parametrize("name", ["worker", "serve"])
def test_the_grace_of_a_pod_fits(name: str) -> None:
    stop = container(name).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    needed = float(stop[1]) + Settings().grace + (STORING if name == "worker" else 0)
    assert PODS[name]["terminationGracePeriodSeconds"] > needed


def test_a_worker_ends_itself_before_its_liveness_probe_ends_it() -> None:
    probe = container("worker")["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > Settings().loop_timeout


def test_budgets_services_and_scalers_select_pods_that_exist() -> None:
    labels = [spec["template"]["metadata"]["labels"] for _, spec in of_kind("Deployment")]
    chosen = [spec["selector"]["matchLabels"] for _, spec in of_kind("PodDisruptionBudget")]
    chosen += [spec["selector"] for _, spec in of_kind("Service")]
    assert len(chosen) == 3 and all(each in labels for each in chosen)
    ((_, service),) = of_kind("Service")
    assert service["ports"][0]["targetPort"] in [port["name"] for port in container("serve")["ports"]]


def test_the_scaler_asks_for_the_workers_own_queue_and_slots(hf: Holdfast, sql: Any) -> None:
    ((_, spec),) = of_kind("ScaledObject")
    arguments = container("worker")["args"]
    trigger = spec["triggers"][0]["metadata"]
    assert spec["scaleTargetRef"]["name"] in [name for name, _ in of_kind("Deployment")]
    assert trigger["connectionFromEnv"] == "HOLDFAST_DSN"
    assert trigger["targetQueryValue"] == arguments[arguments.index("--concurrency") + 1]
    assert f"'{arguments[arguments.index('--queues') + 1]}'" in trigger["query"]
    assert sql(trigger["query"]) == [(0,)]
    assert spec["minReplicaCount"] >= 1, "without a worker there is no upkeep"


def test_settings_named_in_deploy_exist_and_their_values_fit() -> None:
    for path in [*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.service"), *DEPLOY.glob("*.*"), DEPLOY / "Dockerfile"]:
        assert set(re.findall(r"HOLDFAST_[A-Z_]+[A-Z]", path.read_text())) <= SETTINGS.keys(), path
    Settings.load({each["name"]: each["value"] for each in container("worker")["env"]})


def test_the_ports_of_probes_are_those_of_the_settings() -> None:
    ports = {port["name"]: port["containerPort"] for port in container("worker")["ports"]}
    given = Settings.load({each["name"]: each["value"] for each in container("worker")["env"]})
    assert ports == {"health": given.health_port, "metrics": given.metrics_port}
    assert given.health_host == given.metrics_host == "0.0.0.0"  # noqa: S104 - of the container


def test_compose_runs_what_there_is() -> None:
    (compose,) = documents(DEPLOY / "compose.yml")
    services = compose["services"]
    assert set(services) == {"postgres", "migrate", "worker", "serve"}
    for name in ("migrate", "worker", "serve"):
        service = services[name]
        app = [] if name == "migrate" else ["app:hf"]
        assert problem([service["command"][0], *app, *service["command"][1:]]) is None
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
    for name in ("worker", "serve"):
        assert float(services[name]["stop_grace_period"].removesuffix("s")) > Settings().grace + STORING
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["serve"]["ports"][0].startswith("127.0.0.1:"), "TLS is the proxy's"


def test_the_image_is_small_and_not_roots() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    lines = text.replace("\\\n", " ").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith((" ", "#"))]
    assert [rest.split()[0] for word, rest in words if word == "FROM"] == ["python:${PYTHON}-slim"] * 2
    assert "USER 10001:10001" in lines and ("HEALTHCHECK" in [word for word, _ in words])
    copied = [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
    assert copied and all((ROOT / name).exists() for name in copied)
    settings = dict(re.findall(r"(HOLDFAST_[A-Z_]+)=(\S+)", text))
    Settings.load(settings)
    extras = re.search(r"'\.\[([a-z,]+)\]'", text)
    assert extras and set(extras[1].split(",")) <= set(
        re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M)
    )


def test_the_constraints_of_the_image_are_the_lock_without_hashes() -> None:
    (command,) = re.findall(r"RUN (sed .*?) > constraints\.txt", (DEPLOY / "Dockerfile").read_text())
    done = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=True)
    pins = [line for line in done.stdout.splitlines() if line and not line.startswith("#")]
    assert len(pins) > 50 and all(re.fullmatch(r"[\w.-]+==[\w.!+-]+( ; .*)?", line.strip()) for line in pins)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


ENTRY = ["sh", str(DEPLOY / "entrypoint.sh")]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def checked(port: int) -> int:
    """Return the exit code of the container's health check."""
    done = subprocess.run(
        [sys.executable, DEPLOY / "healthcheck.py"],
        env=os.environ | {"HOLDFAST_HEALTH_PORT": str(port), "SERVICE_PORT": "1"},  # where nothing listens
        capture_output=True,
        check=False,
    )
    return done.returncode


def test_the_entry_point_migrates(dsn: str, folder: Path) -> None:
    done = subprocess.run(
        [*ENTRY, "migrate"], cwd=folder, env=environment(dsn, PATH=PATH), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "up to date" in done.stdout, done.stderr


def test_the_entry_point_runs_a_worker_that_its_health_check_sees(
    hf: Holdfast, dsn: str, folder: Path, unused_tcp_port: int
) -> None:
    health = {"HOLDFAST_HEALTH_PORT": str(unused_tcp_port), "PATH": PATH}
    assert checked(unused_tcp_port) == 1, "nothing listens"
    with started(dsn, "worker", "--concurrency", "3", folder=folder, command=ENTRY, **health) as program:
        wait_until(lambda: checked(unused_tcp_port) == 0)
        wait_until(lambda: get(unused_tcp_port, "/ready") == 200)
        assert [each["concurrency"] for each in hf.workers.list()] == [3]
        program.process.terminate()
        assert program.ended() == 0, "SIGTERM reaches the worker"


def test_the_entry_point_serves_the_application_that_is_named(hf: Holdfast, dsn: str, folder: Path) -> None:
    (folder / "other.py").write_text(APP)
    with started(dsn, "serve", "--port", "0", folder=folder, command=ENTRY, APP="other:hf", PATH=PATH) as program:
        port = int(wait_until(lambda: re.search(r"http://0\.0\.0\.0:(\d+)/v1", program.output))[1])
        assert get(port, "/v1/health/ready") == 200
        program.process.terminate()
        assert program.ended() in (0, -15)


def test_the_entry_point_runs_any_other_command(dsn: str, folder: Path) -> None:
    done = subprocess.run(
        [*ENTRY, "jobs", "--json"], env=environment(dsn, PATH=PATH), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
