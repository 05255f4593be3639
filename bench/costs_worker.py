"""The processes of bench/costs.py: a worker, one that writes when its handlers started, or a bare loop that does."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from holdfast.bench import bare
from holdfast.bench.app import hf
from holdfast.settings import Settings
from holdfast.store.wire import connect
from holdfast.worker import Worker, keep_what_is_loaded

STARTS: list[tuple[int, int]] = []


@hf.task(name="bench.start")
async def start(n: int) -> None:
    """Note when this handler started."""
    STARTS.append((n, time.time_ns()))


def listen() -> None:
    """Claim a job for each notification, in bare SQL."""
    settings = Settings.load()
    claim = bare.CLAIM.format(s=settings.schema)
    conn: Any = psycopg.connect(connect.conninfo(settings, "bare claim"), autocommit=True, prepare_threshold=0)
    conn.execute("SET enable_seqscan = off")
    conn.execute(claim, (1,))
    listener = psycopg.connect(connect.conninfo(settings, "bare listen"), autocommit=True)
    listener.execute("LISTEN bare_pickup")
    for _ in listener.notifies():
        for row in conn.execute(claim, (1,)).fetchall():
            STARTS.append((json.loads(row[2])["n"], time.time_ns()))
            conn.execute(bare.FINISH.format(s=settings.schema), ("{" + row[0] + "}",))


def main(kind: str = "", path: str = "") -> None:
    """Run until SIGTERM."""
    if kind == "bare":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        try:
            listen()
        finally:
            Path(path).write_text(json.dumps(STARTS))
        return
    keep_what_is_loaded()
    bare.run_async(Worker(hf).run(handle_signals=True))
    if path:
        Path(path).write_text(json.dumps(STARTS))


if __name__ == "__main__":
    main(*sys.argv[1:])
