"""Installs each peer into a folder of its own below build/peers; what is there already is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.peers import Peer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
NODE = (22, 12)  # what pg-boss needs; an older one is replaced by npm's own package `node`


def install(peers: list[Peer]) -> None:
    """Install what is missing of these peers."""
    for peer in peers:
        if peer.packages is None:
            continue
        asked = (HERE / "requirements" / peer.packages).read_text(encoding="utf-8")
        done = folder(peer) / "installed"
        if done.exists() and done.read_text(encoding="utf-8") == asked:
            continue
        print(f"installing {peer.name} into {folder(peer).relative_to(ROOT)} ...", flush=True)
        shutil.rmtree(folder(peer), ignore_errors=True)
        folder(peer).mkdir(parents=True)
        (_install_node if peer.node else _install_python)(peer, asked)
        done.write_text(asked, encoding="utf-8")


def folder(peer: Peer) -> Path:
    """Return the folder of a peer's packages."""
    return BUILD / peer.adapter.partition(".")[0].removesuffix("_adapter")


def program(peer: Peer) -> str:
    """Return the interpreter that runs a peer's adapter."""
    if peer.packages is None:
        return sys.executable
    own = folder(peer) / "node_modules" / "node" / "bin" / "node"
    if peer.node:
        return str(own) if own.exists() else "node"
    return str(folder(peer) / "bin" / "python")


def environment(peer: Peer) -> dict[str, str]:
    """Return the environment of a peer's adapter."""
    paths = [str(HERE / "adapters"), *([str(ROOT / "src")] if peer.packages is None else [])]
    bin_folder = str(Path(program(peer)).parent)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PEERS_PACKAGES": str(folder(peer)),
        "PATH": os.pathsep.join([bin_folder, os.environ["PATH"]]),
    }


def _install_python(peer: Peer, asked: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder(peer))], check=True)
    subprocess.run(
        [program(peer), "-m", "pip", "install", "-q", "-r", "/dev/stdin"], input=asked, text=True, check=True
    )


def _install_node(peer: Peer, asked: str) -> None:
    (folder(peer) / "package.json").write_text(asked, encoding="utf-8")
    quiet = ["--silent", "--no-audit", "--no-fund"]
    subprocess.run(["npm", "install", *quiet], cwd=folder(peer), check=True)
    if _node_version() < NODE:
        subprocess.run(["npm", "install", *quiet, "node@22"], cwd=folder(peer), check=True)


def _node_version() -> tuple[int, ...]:
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in shown.strip().lstrip("v").split("."))
