"""PostgreSQL servers under Patroni and etcd, in a temporary folder, for tests and measurements of failovers.

As root each server has a network namespace of its own with a veth pair to a bridge, so that one can be cut off: its
packets vanish, as when a cable is pulled. Without root all servers are on 127.0.0.1, and none can be cut off. The
servers' programs run as `postgres` (root may not run them), and end with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NEEDED = ("patroni", "patronictl", "etcd", "setpriv")
SCOPE = "jobs"
DATABASE = "postgres"
# Seconds until a primary that is silent loses its lead; how often Patroni looks; how long it bears that etcd is away.
TIMES = {"ttl": 5, "loop_wait": 1, "retry_timeout": 3}
# Commits need not outlive a crash of the machine; a test ends processes alone. Full pages are written: a standby that
# was ahead of the new primary needs pg_rewind, which refuses a primary without them.
PARAMETERS = {
    "fsync": "off",
    "wal_level": "replica",
    "max_connections": 100,
    "wal_retrieve_retry_interval": "200ms",  # a standby that finds no slot yet asks again; 5 s otherwise
}


def programs() -> Path | None:
    """Return the folder of a PostgreSQL's programs that the machine has, the newest; None if it has none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[4]))
    return found[-1].parent if found else None


def missing() -> str:
    """Return what this machine lacks for a cluster; empty if nothing."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return ", ".join([*lacking, *(() if programs() else ("PostgreSQL's server programs",))])


def can_cut() -> bool:
    """Return whether this process may make network namespaces."""
    if os.geteuid() or not shutil.which("ip"):
        return False
    name = f"hf{os.getpid()}p"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return not done.returncode


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Network:
    """The servers' addresses, and the cables between them."""

    def __init__(self, nodes: int, cuttable: bool) -> None:
        self._cuttable = cuttable
        self._nodes = nodes
        self._name = f"hf{os.getpid() % 100_000}"
        self._subnet = f"10.213.{os.getpid() % 250}"
        self.host = f"{self._subnet}.1" if cuttable else "127.0.0.1"

    def lay(self) -> None:
        if not self._cuttable:
            return
        _ip("link", "add", f"{self._name}b", "type", "bridge")
        _ip("addr", "add", f"{self.host}/24", "dev", f"{self._name}b")
        _ip("link", "set", f"{self._name}b", "up")
        for n in range(self._nodes):
            space, here, there = f"{self._name}n{n}", f"{self._name}v{n}", f"{self._name}w{n}"
            _ip("netns", "add", space)
            _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
            _ip("link", "set", here, "master", f"{self._name}b", "up")
            for change in (("addr", "add", f"{self.address(n)}/24", "dev", there), ("link", "set", there, "up")):
                _ip("-n", space, *change)
            _ip("-n", space, "link", "set", "lo", "up")

    def address(self, node: int) -> str:
        return f"{self._subnet}.{node + 2}" if self._cuttable else "127.0.0.1"

    def inside(self, node: int) -> list[str]:
        """Return the command that runs another one on this server's side."""
        return ["ip", "netns", "exec", f"{self._name}n{node}"] if self._cuttable else []

    def connect(self, node: int, on: bool) -> None:
        """Cut a server off, or connect it again."""
        _ip("link", "set", f"{self._name}v{node}", "up" if on else "down")

    def remove(self) -> None:
        if self._cuttable:
            for n in range(self._nodes):
                _ip("netns", "del", f"{self._name}n{n}", check=False)
            _ip("link", "del", f"{self._name}b", check=False)


class Cluster:
    """The servers of one cluster; `dsn` names them all."""

    def __init__(
        self, folder: Path, network: Network, nodes: int, *, synchronous: bool, times: Mapping[str, int] = TIMES
    ) -> None:
        self.folder = folder
        self.network = network
        self.nodes = range(nodes)
        self._synchronous = synchronous
        self._times = dict(times)
        etcd, peer, *ports = _free_ports(2 + 2 * nodes)
        self._etcd, self._peer = etcd, peer
        self.ports, self._rest = ports[:nodes], ports[nodes:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        hosts = ",".join(self.network.address(n) for n in self.nodes)
        ports = ",".join(str(each) for each in self.ports)
        return f"host={hosts} port={ports} dbname={DATABASE} user=postgres password=secret"

    # -- its processes

    def start(self) -> None:
        """Start all servers, and wait until there is a primary with its standbys."""
        url, peer = f"http://{self.network.host}:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._keeper = self._spawn(
            [], ["etcd", "--data-dir", str(self.folder / "etcd"), "--log-level", "error",
                 "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"], "etcd")  # fmt: skip
        for n in self.nodes:
            self.start_node(n)
        self.wait_until_whole()

    def start_node(self, node: int, *, fresh: bool = False) -> None:
        """Start Patroni, which starts its server; a fresh one copies the primary's data."""
        if fresh:
            shutil.rmtree(self.data(node), ignore_errors=True)
        config = self.folder / f"n{node}.yml"
        config.write_text(json.dumps(self._config(node)))  # JSON is YAML
        self._own(config)
        self._processes[node] = self._spawn(self.network.inside(node), ["patroni", str(config)], f"n{node}")

    def _spawn(self, inside: list[str], command: list[str], name: str) -> subprocess.Popen[bytes]:
        account = _account()
        drop = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"] if account else []
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*inside, "setpriv", *drop, "--pdeathsig", "KILL", *command],
                env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def _own(self, path: Path) -> None:
        if account := _account():
            os.chown(path, account.pw_uid, account.pw_gid)

    def _config(self, node: int) -> dict[str, Any]:
        address = self.network.address(node)
        own = {"username": "postgres", "password": "secret"}
        return {
            "scope": SCOPE,
            "name": f"n{node}",
            "restapi": {"listen": f"{address}:{self._rest[node]}", "connect_address": f"{address}:{self._rest[node]}"},
            "etcd3": {"hosts": f"{self.network.host}:{self._etcd}"},
            "bootstrap": {
                "dcs": {
                    **self._times,
                    "synchronous_mode": self._synchronous,
                    "maximum_lag_on_failover": 1 << 40,
                    "postgresql": {"use_pg_rewind": True, "parameters": {**PARAMETERS, "wal_log_hints": "on"}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
                "pg_hba": ["local all all trust", "host all all 0.0.0.0/0 md5", "host replication all 0.0.0.0/0 md5"],
            },
            "postgresql": {
                "listen": f"{address}:{self.ports[node]}",
                "connect_address": f"{address}:{self.ports[node]}",
                "data_dir": str(self.data(node)),
                "bin_dir": str(programs()),
                "pgpass": str(self.folder / f"pgpass{node}"),
                "authentication": {"superuser": own, "replication": {**own, "username": "replicator"}, "rewind": own},
                "parameters": {"unix_socket_directories": str(self.folder)},
                "basebackup": [{"checkpoint": "fast"}],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }

    def data(self, node: int) -> Path:
        return self.folder / f"data{node}"

    def kill(self, node: int) -> None:
        """Kill (-9) a server: Patroni, the postmaster and all its processes."""
        self._processes[node].kill()
        self._processes[node].wait()
        while pids := _working_in(self.data(node)):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def stop(self) -> None:
        for node in list(self._processes):
            self.kill(node)
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()

    # -- what Patroni says

    def members(self, of: int | None = None) -> dict[int, str]:
        """Map the servers that run to their roles, as one of them sees it: leader, sync_standby, replica."""
        for n in self.nodes if of is None else (of,):
            url = f"http://{self.network.address(n)}:{self._rest[n]}/cluster"
            with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=1) as reply:
                found = json.load(reply)["members"]
                return {
                    int(each["name"][1:]): each["role"] for each in found if each["state"] in ("running", "streaming")
                }
        return {}

    def primary(self) -> int:
        return int(self._await(self._leader, "a primary"))

    def _leader(self) -> int | None:
        return next((n for n, role in self.members().items() if role == "leader"), None)

    def wait_until_whole(self) -> None:
        """Wait until all servers run, one leads and, in synchronous mode, one of the others has every commit."""
        roles = ["leader", *(["sync_standby"] if self._synchronous else [])]

        def whole() -> bool:
            found = self.members()
            return len(found) == len(self.nodes) and set(roles) <= set(found.values())

        self._await(whole, "a whole cluster")

    def _await(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something of this cluster; show the ends of its logs if it does not come."""
        try:
            return _await(condition, what)
        except TimeoutError as error:
            logs = "\n".join(f"{each.name}: {each.read_text()[-2000:]}" for each in sorted(self.folder.glob("*.log")))
            raise TimeoutError(f"{error}; members {self.members()}\n{logs}") from None

    def wait_for_another(self, than: int) -> int:
        """Wait until another server is the primary; ask only those that this one cannot mislead."""
        others = [n for n in self.nodes if n != than]

        def another() -> int | None:
            found = {n: role for other in others for n, role in self.members(other).items() if role == "leader"}
            return next((n for n in found if n != than), None)

        return int(self._await(another, "another primary"))

    def wait_for_standby(self) -> int:
        """Return the server that has every commit, once there is one."""
        return int(self._await(self._standby, "a standby"))

    def _standby(self) -> int | None:
        return next((n for n, role in self.members().items() if role == "sync_standby"), None)

    def switch_over(self, of: int, to: int) -> None:
        """Let Patroni make another server the primary."""
        command = ["patronictl", "-c", str(self.folder / f"n{of}.yml"), "switchover", SCOPE]
        done = subprocess.run(
            [*command, "--master", f"n{of}", "--candidate", f"n{to}", "--force"],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stdout + done.stderr


def _account() -> pwd.struct_passwd | None:
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def _working_in(folder: Path) -> list[int]:
    """Return the processes whose working folder this is: a server's, its postmaster and its backends."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if os.readlink(each).removesuffix(" (deleted)") == str(folder):
                found.append(int(each.parts[2]))
    return found


def _await(condition: Callable[[], Any], what: str, seconds: float = 90) -> Any:
    ends = time.monotonic() + seconds
    while (found := condition()) is None or found is False:
        if time.monotonic() > ends:
            raise TimeoutError(f"no {what} within {seconds:g} s")
        time.sleep(0.1)
    return found


@contextmanager
def cluster(nodes: int = 3, *, synchronous: bool = True, cuttable: bool = False) -> Iterator[Cluster]:
    """Run a cluster for the length of a block."""
    folder = Path(tempfile.mkdtemp(prefix="hf-patroni-", dir="/tmp"))  # another account must reach it
    folder.chmod(0o755)
    network = Network(nodes, cuttable)
    made = Cluster(folder, network, nodes, synchronous=synchronous)
    made._own(folder)
    try:
        network.lay()
        made.start()
        yield made
    finally:
        made.stop()
        network.remove()
        shutil.rmtree(folder, ignore_errors=True)
