"""Two tenants' bills of materials become passports despite many faults: python -m passports"""

from __future__ import annotations

import io
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import segno
import zxingcpp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image
from psycopg.types.json import Jsonb

from passports.app import compile_passport, hf, submit
from passports.fake_boms import CSV, JSON, RULES
from passports.fake_receiver import SECRET, Receiver, receiver, verify_signature
from passports.handlers.compile_passport import Issue
from stage import Stage, at_work, run

KEY = "07" * 32
# Shorter than the times of the design, which are the defaults in settings.py.
SHORT = {
    "BPC_JOBS_LEASE_SECONDS": 2,
    "BPC_JOBS_LEASE_RENEW_SECONDS": 0.5,
    "BPC_JOBS_POLL_INTERVAL_MS": 100,
    "BPC_JOBS_BACKOFF_SECONDS": 0.2,
    "BPC_SIGNING_KEY": KEY,
    "HOLDFAST_UPKEEP": 0.2,
}
LABELS = Path(__file__).parents[2] / ".holdfast" / "examples" / "passports-labels"
# In one label of some hundred the decoder would also report a bar code that is not there.
QR_ONLY = zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode)
ACME, BIRCH = str(uuid4()), str(uuid4())


def main(stage: Stage) -> None:
    stage.say("RabbitMQ wakes workers" if hf.settings.amqp_enabled else "No BPC_QUEUE_ENABLED=true, so workers poll")
    with receiver() as customer, receiver() as flaky:
        flaky.statuses = [503] * 5
        for tenant, server in ((ACME, customer), (BIRCH, customer), (BIRCH, flaky)):
            hf.webhooks.add(
                server.url, tenant=tenant, events=["PASSPORT_SIGNED"], prefix="BPC", secret=SECRET, dev=True
            )
        killed = kill_while_compiling(stage)
        with at_work(stage.worker("B", **SHORT), stage.worker("C", **SHORT)):
            with stage.conn.transaction():
                submit(stage.conn, BIRCH, "json", JSON, order(stage, BIRCH))
            compile_too_early(stage)
            check_kill(stage, killed)
            check_dead_letter(stage, flaky)
            counts = "select status, count(*) from jobs group by status"
            stage.follow("the rest", lambda: dict(stage.rows(counts)), {"SUCCEEDED", "FAILED"})
    check_webhooks(stage, customer.accepted + flaky.accepted)
    check_passports(stage)
    stage.show(
        "Jobs",
        "select case tenant_id when %s then 'Acme Cells' else 'Birch Bikes' end as tenant, type, priority, status,"
        " attempts, last_error ->> 'code' as last_error from jobs order by started_at",
        ACME,
    )


def order(stage: Stage, tenant: str) -> Issue:
    """Return the issue to compile, by published rules."""
    (rules,) = stage.rows(
        "insert into rule_packages (tenant_id, status, package) values (%s, 'PUBLISHED', %s) returning rules_id",
        tenant,
        Jsonb(RULES),
    )
    return Issue(uuid4(), rules.rules_id, "build-7", datetime.now(UTC))


def kill_while_compiling(stage: Stage) -> float:
    """Kill worker A in the middle of COMPILE_PASSPORT, where a lock on the table holds it."""
    with at_work(stage.worker("A", **SHORT)) as (worker,), psycopg.connect(hf.database.url) as holder:
        holder.execute("lock table passports.passport_versions in share mode")
        with stage.conn.transaction():
            submit(stage.conn, ACME, "csv", CSV, order(stage, ACME))
        stage.wait_for(
            "worker A to compile",
            lambda: stage.rows(
                "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
                " and query like 'insert into passports.passport_versions%'"
            ),
        )
        worker.kill()
    stage.say("kill -9 of worker A, in the middle of COMPILE_PASSPORT")
    return time.monotonic()


def compile_too_early(stage: Stage) -> None:
    """Order a passport of a snapshot that is not sealed."""
    (made,) = stage.rows("insert into snapshots (tenant_id) values (%s) returning snapshot_id", ACME)
    job = compile_passport.using(tenant=ACME).enqueue(made.snapshot_id, order(stage, ACME))
    query = "select attempts, last_error ->> 'code' as code from jobs where job_id = %s and status = 'FAILED'"
    (failed,) = stage.wait_for("a job that fails for good", lambda: stage.rows(query, job.id))
    stage.check("a snapshot that is not SEALED fails for good", failed.code, failed == (1, "SNAPSHOT_NOT_READY"))


def check_kill(stage: Stage, killed: float) -> None:
    query = "select attempts from jobs where tenant_id = %s and type = 'COMPILE_PASSPORT' and status = 'SUCCEEDED'"
    (job,) = stage.wait_for("worker A's lease to expire", lambda: stage.rows(query, ACME))
    measured = f"attempt {job.attempts}, {time.monotonic() - killed:.1f} s later"
    stage.check("a killed worker's job is completed by another", measured, job.attempts == 2)
    versions = len(stage.rows("select from passport_versions where tenant_id = %s", ACME))
    facts = len(stage.rows("select from facts where tenant_id = %s", ACME))
    measured = f"{versions} version, {facts} facts"
    stage.check("no duplicate versions, no duplicate facts", measured, (versions, facts) == (1, 4))


def check_dead_letter(stage: Stage, flaky: Receiver) -> None:
    """Check the five 503 responses, the dead letter, and the UPDATE to try again."""
    query = "select job_id, attempts, last_error ->> 'code' as code from jobs where status = 'DEAD_LETTER'"
    (dead,) = stage.wait_for("an endpoint to return 503 five times", lambda: stage.rows(query))
    gaps = [round(b - a, 1) for a, b in zip(flaky.times, flaky.times[1:], strict=False)]
    waited = len(gaps) == 4 and all(gap >= 0.2 * 2**n for n, gap in enumerate(gaps))
    stage.check("retries wait 0.2, 0.4, 0.8, 1.6 s, or a moment longer", gaps, waited)
    measured = f"{dead.attempts} attempts, {dead.code}"
    stage.check("DEAD_LETTER after 5 attempts", measured, (dead.attempts, dead.code) == (5, "WebhookNon2xx"))
    update = "UPDATE jobs SET status = 'QUEUED', attempts = 0 WHERE job_id = %s"
    stage.say(f"dead letter: {dead.code}. The endpoint is mended, and an admin says: {update}")
    stage.conn.execute(update, [dead.job_id])
    sent = "select from webhook_deliveries where webhook_delivery_id = %s and status = 'DELIVERED'"
    stage.wait_for("the dead letter to be sent again", lambda: stage.rows(sent, dead.job_id))
    ids = {headers["X-BPC-Delivery-Id"] for _, headers, _ in flaky.got}
    stage.check(
        "a manual retry delivers it, under the same id", f"{len(flaky.got)} requests", ids == {str(dead.job_id)}
    )


def check_webhooks(stage: Stage, accepted: list[tuple[bytes, dict[str, str]]]) -> None:
    verified = [verify_signature(SECRET, body, headers["X-BPC-Signature"]) for body, headers in accepted]
    stage.check("webhooks pass the customer's verifier", f"{sum(verified)} of {len(verified)}", verified == [True] * 3)
    events = dict(stage.rows("select event_type, count(*) from events group by event_type"))
    stage.check("each step appended one audit event", f"{len(events)} types", [*events.values()] == [2] * 4)


def check_passports(stage: Stage) -> None:
    """Check signatures with the public key, and read labels back with zxing-cpp."""
    versions = stage.rows("select * from passport_versions")
    LABELS.mkdir(parents=True, exist_ok=True)
    public, read = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(KEY)).public_key(), 0
    for each in versions:
        public.verify(each.signature, each.receipt_hash)
        (LABELS / f"{each.passport_version_id}.png").write_bytes(each.qr_png)
        found = zxingcpp.read_barcodes(Image.open(io.BytesIO(each.qr_png)), QR_ONLY)
        read += [label.text for label in found] == [each.qr_payload]
    segno.make(versions[0].qr_payload, error="m", boost_error=False).terminal(compact=True)
    stage.say(f"{versions[0].qr_payload}\nLabels as PNG: .holdfast/examples/passports-labels")
    stage.check("passports are signed (Ed25519 over the receipt hash)", f"{len(versions)} verified", len(versions) == 2)
    stage.check("labels are read back by a decoder", f"{read} of {len(versions)}", read == len(versions) == 2)


if __name__ == "__main__":
    sys.exit(run("passports", hf, main, look_at="webhooks deliveries"))
