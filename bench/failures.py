"""Failures of 40 kinds, counted in groups: `python -m bench.failures [FAILURES]`.

Each failure has values of its own in its message: ids, numbers, addresses, times, paths. Workers' fingerprints and
finish() by calls of 500 jobs; fold_errors() once a second. Prints the groups found and the time of each failure.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.model.failure import fingerprint
from holdfast.store.dev.embedded import EmbeddedPostgres

CALL = 500
MESSAGES = (
    ("TimeoutError", "GET https://{host}/orders/{number} did not reply within {number} ms"),
    ("ConnectionRefusedError", "[Errno 111] connect to {host}:{number} refused"),
    ("KeyError", "'{word}'"),
    ("ValueError", "invalid literal for int() with base 10: '{word}'"),
    ("UniqueViolation", 'duplicate key value violates "users_email"\nDETAIL:  Key (email)=({mail}) already exists.'),
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/var/spool/{word}/{number}.csv'"),
    ("SMTPRecipientsRefused", "{{'{mail}': (550, b'5.1.1 user {number} unknown')}}"),
    ("HTTPStatusError", "server error '503 Service Unavailable' for order {id} at {time}"),
    ("DecodeError", "column {number}: expected number, found `{word}`"),
    ("RuntimeError", "worker {host} lost the lock of shard {number} since {time}"),
)
TASKS = ("mail", "charge", "sync", "report")


def failure(choice: random.Random, kind: int) -> tuple[str, dict[str, Any]]:
    """Return the task and the error of a failure of one of 40 kinds."""
    task, (type_, message) = TASKS[kind % 4], MESSAGES[kind // 4]
    word, number = f"{choice.randrange(16**8):x}a", choice.randrange(10**6)
    text = message.format(
        host=f"node{number}.example.org",
        number=number,
        word=word,
        mail=f"{word}@example.org",
        id=uuid.UUID(int=choice.getrandbits(128)),
        time=f"2026-11-{number % 28 + 1:02}T{number % 24:02}:00:00Z",
    )
    error = {"type": type_, "message": text, "frame": f"{task}.py:run", "traceback": "Traceback " + "x" * 600}
    return task, error | {"fingerprint": fingerprint(task, error)}


def fail(conn: psycopg.Connection[Any], choice: random.Random) -> float:
    """Enqueue, claim and fail the jobs of one call; return the seconds that finish() took."""
    made = {str(uuid.uuid4()): failure(choice, choice.randrange(40)) for _ in range(CALL)}
    conn.execute(
        "insert into live (id, task, max_attempts) select * from unnest(%s::uuid[], %s::text[], %s::int[])",
        [list(made), [task for task, _ in made.values()], [1] * CALL],
    )
    jobs = conn.execute("select id::text, token from claim('w', '{default}', %s)", [CALL]).fetchall()
    outcomes = [{"id": id_, "token": token, "outcome": "error", "error": made[id_][1]} for id_, token in jobs]
    began = time.perf_counter()
    conn.execute("select finish('{}', '{}', %s::jsonb, %s)", [json.dumps(outcomes), [jobs[0][1]]])
    return time.perf_counter() - began


def main(failures: int) -> None:
    choice = random.Random(40)
    with tempfile.TemporaryDirectory(prefix="hf") as folder, EmbeddedPostgres(Path(folder) / "pg") as server:
        dsn = server.dsn()
        Holdfast(dsn).migrate()
        with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
            began, folded, ending, folding = time.perf_counter(), 0.0, 0.0, 0.0
            for _ in range(failures // CALL):
                ending += fail(conn, choice)
                if time.perf_counter() - folded > 1:
                    folded = time.perf_counter()
                    conn.execute("select fold_errors()")
                    folding += time.perf_counter() - folded
            while conn.execute("select 1 from error_arrivals limit 1").fetchone():
                conn.execute("select fold_errors()")
            seconds = time.perf_counter() - began
            groups = conn.execute("select count(*), sum(attempts), sum(dead) from error_groups").fetchone()
            looked = time.perf_counter()
            conn.execute("select * from errors order by last_at desc limit 50").fetchall()
            looked = time.perf_counter() - looked
        print(f"groups, attempts, dead: {groups}; {failures / seconds:,.0f} failures/s; list {looked * 1000:.1f} ms")
        print(f"us a failure: finish() {ending / failures * 1e6:.1f}, fold_errors() {folding / failures * 1e6:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
