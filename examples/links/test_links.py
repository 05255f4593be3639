"""The link enrichment worker, by the sentences of its document. The fake web stands on 127.0.0.x."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast import Holdfast
from holdfast.telemetry.sentry import Reporter
from holdfast.testing import Kit, scratch_database
from links import app
from links.api import api
from links.bookmarks import canonical, parse
from links.fake_web import FakeWeb
from links.head import decode
from stage import Worker, at_work, serving, wait_for

HERE = Path(__file__).parent
NEWS, WIKI, SHOP = "127.0.0.11", "127.0.0.16", "127.0.0.22"


@pytest.fixture(scope="session")
def holdfast_app() -> Holdfast:
    return app.hf


@pytest.fixture(scope="session")
def holdfast_template(holdfast_template: str) -> str:
    with psycopg.connect(holdfast_template) as conn:
        conn.execute((HERE / "schema.sql").read_text())
    return holdfast_template


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWeb]:
    monkeypatch.setenv("LINKS_ALLOW_PRIVATE", "yes")
    monkeypatch.setenv("LINKS_FETCH_TIMEOUT", "1")
    with FakeWeb() as web:
        yield web


@pytest.fixture
def client(holdfast_kit: Kit) -> Iterator[httpx.Client]:
    """The API on its own port, called by user ann."""
    with serving(api) as made:
        made.headers["X-User-Id"] = "ann"
        yield made


@pytest.fixture
def db(holdfast_kit: Kit) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(holdfast_kit.dsn, autocommit=True, row_factory=dict_row) as conn:
        yield conn


def a_file(*urls: str) -> bytes:
    lines = "".join(f'<DT><A HREF="{url}" ADD_DATE="1600000000">a page</A>\n' for url in urls)
    return f"<!DOCTYPE NETSCAPE-Bookmark-file-1><DL><p><DT><H3>Bar</H3><DL><p>{lines}</DL><p></DL><p>".encode()


def imported(client: httpx.Client, *urls: str, user: str = "ann") -> str:
    response = client.post("/imports", content=a_file(*urls), headers={"X-User-Id": user})
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def jobs_of(db: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    return db.execute("select * from links.enrichment_jobs order by id").fetchall()


def the_job(db: psycopg.Connection[Any]) -> dict[str, Any]:
    (job,) = jobs_of(db)
    return job


# The file


def test_folders_are_nested_and_each_bookmark_knows_its_own() -> None:
    text = """<!DOCTYPE NETSCAPE-Bookmark-file-1><TITLE>Bookmarks</TITLE><H1>Bookmarks</H1>
        <DL><p><DT><H3 ADD_DATE="1">Bar</H3><DL><p>
          <DT><A HREF="https://a.example/?x=1&amp;y=2" ADD_DATE="1600000000" ICON="data:image/png,AA">A &lt;b&gt;</A>
          <DT><H3>한식</H3><DL><p><DT><A HREF="https://b.example/">B</A></DL><p>
          <DT><A HREF="https://c.example/" ADD_DATE="never">C</A></DL><p>
        <DT><A HREF="https://d.example/">D</A><DT><A>no link</A></DL><p>"""
    found = parse(text)
    assert [(each.folder, each.title) for each in found] == [
        ("Bar", "A <b>"),
        ("Bar/한식", "B"),
        ("Bar", "C"),
        ("", "D"),
    ]
    assert found[0].url == "https://a.example/?x=1&y=2"
    assert [each.added_at and each.added_at.year for each in found] == [2020, None, None, None]


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ("HTTPS://User:pw@Shop.Example.:443/a/b/?utm_source=x&q=1&FBCLID=2#top", "https://shop.example/a/b?q=1"),
        ("http://shop.example:80", "http://shop.example/"),
        ("http://shop.example:8080/?gclid=1", "http://shop.example:8080/"),
        ("https://bücher.example/Straße/", "https://xn--bcher-kva.example/Straße"),
        ("http://[::1]:80/x", "http://[::1]/x"),
    ],
)
def test_a_link_has_one_spelling(given: str, one: str) -> None:
    assert canonical(given) == canonical(one) == one


@pytest.mark.parametrize(
    "given", ["javascript:alert(1)", "chrome://x/", "https://", "http://a:b/", "http://[x/", "x" * 3000]
)
def test_what_is_no_link_is_rejected(given: str) -> None:
    with pytest.raises(ValueError, match=r"not a link|[Pp]ort|IPv6"):
        canonical(given)


def test_a_page_is_read_by_the_charset_that_fits() -> None:
    page = '<meta http-equiv="Content-Type" content="text/html; charset=euc-kr"><title>한국어</title>'.encode("euc-kr")
    assert "한국어" in decode(page, "utf-8") == decode(page, None) == decode(page, "no-such-charset")
    assert decode("é".encode()[:1], None) == ""  # a character that was cut off is no error


# 1 Tables: import_jobs, enrichment_jobs


def test_an_import_is_counted_and_the_web_tier_only_creates_and_reads(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    pages = [outside.url(NEWS, f"/page/{n}") for n in range(60)]
    key = imported(client, *pages, "javascript:void(0)")
    before = client.get(f"/imports/{key}").json()
    assert (before["status"], before["total_items"], before["processed_items"]) == ("queued", 61, 0)
    assert before["source_type"] == "chrome_html" and before["user_id"] == "ann" and before["started_at"] is None
    assert {job.attempts for job in holdfast_kit.waiting()} == {0}  # nothing was claimed by the web tier
    holdfast_kit.drain(queue="imports")
    after = client.get(f"/imports/{key}").json()
    assert (after["status"], after["processed_items"], after["failed_items"]) == ("succeeded", 61, 1)
    assert "javascript:" in after["last_error"] and after["finished_at"]
    assert db.execute("select count(*) as n from links.link_instances").fetchone() == {"n": 60}
    assert len(jobs_of(db)) == 60


def test_the_tables_have_the_documents_columns(db: psycopg.Connection[Any]) -> None:
    imports = "id user_id source_type status total_items processed_items failed_items created_at started_at finished_at"
    enrichment = "id link_canonical_id status attempts max_attempts run_after locked_at locked_by created_at updated_at"
    for view, names in (("import_jobs", imports), ("enrichment_jobs", enrichment)):
        found = [column.name for column in db.execute(f"select * from links.{view}").description or ()]
        assert {*names.split(), "last_error"} <= set(found)


def test_a_user_sees_only_their_own_imports(client: httpx.Client) -> None:
    key = imported(client, "https://a.example/")
    stranger = {"X-User-Id": "bora"}
    assert client.get(f"/imports/{key}", headers=stranger).status_code == 404
    assert client.post(f"/imports/{key}/cancel", headers=stranger).status_code == 404
    assert client.post("/imports", content=b"<html>no bookmarks</html>").status_code == 422


def test_a_link_is_enriched_once_however_often_it_is_kept(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    """UNIQUE: no new job while one waits or runs, nor after success; placements make no difference."""
    page = outside.url(NEWS, "/page/1")
    imported(client, page, f"{page}#part", f"{page}/?utm_source=x")
    imported(client, page, user="bora")
    holdfast_kit.drain()
    imported(client, page, user="cho")  # after success
    holdfast_kit.drain()
    job = the_job(db)
    assert job["status"] == "succeeded" and job["max_attempts"] == 2
    assert outside.enriched() == {(NEWS, "/page/1"): 1}
    instances = db.execute("select user_id, link_canonical_id from links.link_instances order by 1").fetchall()
    assert [each["user_id"] for each in instances] == ["ann", "bora", "cho"]
    assert {each["link_canonical_id"] for each in instances} == {job["link_canonical_id"]}


def test_a_success_is_remembered_for_ever_and_a_dead_link_gets_no_second_job(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    good, bad = outside.url(NEWS, "/page/1"), outside.url("127.0.0.23", "/forbidden/1")
    imported(client, good, bad)
    holdfast_kit.drain(raise_errors=False)
    for link in db.execute("select id::text as link, url, domain from links.canonical_links where url = %s", [good]):
        db.execute("delete from holdfast.history")  # as when retention has dropped the day
        assert app.enrich.enqueue(**link).existing
    imported(client, good, bad, user="bora")
    assert [attempt.task for attempt in holdfast_kit.drain()] == ["links.place", "links.imported"]
    assert [job["status"] for job in jobs_of(db)] == ["dead"]


# 2 State machine, 6 Retry


def test_queued_failed_after_five_minutes_queued_again_then_succeeded(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    imported(client, outside.url(SHOP, "/flaky/1"))
    holdfast_kit.drain(queue="imports")
    assert the_job(db)["status"] == "queued"
    now = holdfast_kit.clock.freeze()
    holdfast_kit.drain(raise_errors=False)
    failed = the_job(db)
    assert (failed["status"], failed["attempts"]) == ("failed", 1) and failed["last_error"].startswith("HTTP_500: ")
    assert failed["run_after"] == now + timedelta(minutes=5)
    holdfast_kit.clock.travel(299)
    assert holdfast_kit.drain() == ()
    holdfast_kit.clock.travel(1)
    holdfast_kit.drain()
    assert (the_job(db)["status"], the_job(db)["attempts"]) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("path", "code"), [("/broken/1", "HTTP_500"), ("/circle/1", "REDIRECTS")], ids=["500", "redirects in circles"]
)
def test_the_second_failure_is_dead(
    path: str, code: str, holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    imported(client, outside.url(SHOP, path))
    holdfast_kit.drain(with_retries=True, raise_errors=False)
    assert (the_job(db)["status"], the_job(db)["attempts"]) == ("dead", 2)
    assert the_job(db)["last_error"].startswith(code)
    assert app.hf.dead.blocks() == []  # trouble is no refusal


@pytest.mark.parametrize(
    ("path", "code"), [("/forbidden/1", "HTTP_403"), ("/private/1", "ROBOTS"), ("/captcha/1", "CAPTCHA")]
)
def test_403_robots_and_captcha_are_dead_at_once_and_block_candidates(
    path: str, code: str, holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    imported(client, outside.url(SHOP, path))
    holdfast_kit.drain(raise_errors=False)
    assert (the_job(db)["status"], the_job(db)["attempts"]) == ("dead", 1)
    (block,) = db.execute("select * from links.block_candidates").fetchall()
    assert block["domain"] == SHOP and block["reason"].startswith(code)
    assert outside.requests[SHOP, path] == (0 if code == "ROBOTS" else 1)


def test_a_busy_site_is_requested_again_after_its_retry_after(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    imported(client, outside.url(SHOP, "/busy/1"))
    now = holdfast_kit.clock.freeze()
    holdfast_kit.drain(raise_errors=False)
    assert the_job(db)["run_after"] == now + timedelta(seconds=1)
    holdfast_kit.drain(with_retries=True)
    assert the_job(db)["status"] == "succeeded"


def test_the_numbers_are_the_documents() -> None:
    """N = 10, k = 2, max_attempts = 2, 5 minutes, a lock's TTL of 10 minutes."""
    settings, enrich = app.hf.settings, app.enrich.describe()
    assert (settings.concurrency, settings.claim_size, settings.prefetch) == (10, 10, 0)
    assert (settings.lease, settings.renew) == (600, 60)
    assert (enrich["max_attempts"], app.AGAIN.delay(1)) == (2, 300)
    assert [(limit.key, limit.concurrency) for limit in app.hf.registry.limits] == [("domain:{domain}", 2)]


# What is kept of a page


def test_title_description_icon_and_image_are_kept_and_nothing_else(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    paths = ["/page/1", "/korean/1", "/untitled/1", "/huge/1", "/file/1.pdf", "/moved/1", "/hang/1"]
    imported(client, *(outside.url(NEWS, path) for path in paths))
    holdfast_kit.drain(with_retries=True, concurrency=2, raise_errors=False)
    rows = db.execute("select c.*, to_jsonb(c)::text as whole from links.canonical_links c order by id").fetchall()
    found = {row["url"].partition(str(outside.port))[2]: row for row in rows}
    assert {path: found[path]["title"] for path in paths} == {
        "/page/1": "Page /page/1",
        "/korean/1": "한국어 제목",
        "/untitled/1": None,
        "/huge/1": "Page /huge/1",
        "/file/1.pdf": None,
        "/moved/1": "Page /page/here-1",
        "/hang/1": "Page /hang/1",
    }
    assert found["/page/1"]["description"] == "About /page/1 & more"
    assert found["/page/1"]["icon"] == outside.url(NEWS, "/icon.png")
    assert found["/page/1"]["og_image"] == "https://img.example/page/1.jpg"
    assert found["/file/1.pdf"]["content_type"] == "application/pdf"
    assert not any("recipe" in row["whole"] for row in rows)  # what the pages' bodies say
    assert outside.requests[NEWS, "/hang/1"] == 2  # it took too long at first


def test_a_link_that_leads_to_another_host_is_enriched_there_under_that_hosts_limit(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    imported(client, outside.url(NEWS, "/away/1"))
    holdfast_kit.drain()
    assert [job["domain"] for job in jobs_of(db)] == [NEWS, WIKI]
    (shown,) = db.execute("select * from links.shelf").fetchall()
    assert shown["title"] == "Page /page/from-away-1" and shown["folder"] == "Bar"


def test_only_public_addresses_are_dialled(
    holdfast_kit: Kit,
    client: httpx.Client,
    db: psycopg.Connection[Any],
    outside: FakeWeb,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LINKS_ALLOW_PRIVATE")
    imported(client, outside.url(NEWS, "/page/1"))
    holdfast_kit.drain(raise_errors=False)
    assert the_job(db)["last_error"].startswith("ADDRESS_REFUSED: 127.0.0.11 is a loopback address")
    assert not outside.requests


# Cancel


def test_a_canceled_import_stops_and_leaves_others_alone(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb
) -> None:
    pages = [outside.url(NEWS, f"/page/{n}") for n in range(120)]
    mine, other = imported(client, *pages), imported(client, pages[0], user="bora")
    holdfast_kit.run(holdfast_kit.waiting()[0])
    assert client.get(f"/imports/{mine}").json()["status"] == "running"
    assert client.post(f"/imports/{mine}/cancel").json() == {"canceled_items": 2}
    holdfast_kit.drain(queue="imports")
    progress = client.get(f"/imports/{mine}").json()
    assert (progress["status"], progress["processed_items"], progress["total_items"]) == ("canceled", 50, 120)
    assert client.get(f"/imports/{other}", headers={"X-User-Id": "bora"}).json()["status"] == "succeeded"
    assert len(jobs_of(db)) == 50  # placed links are enriched: other users may have kept them too


# 7 Observability


def test_sentry_gets_failures_without_queries_and_a_breadcrumb_of_the_dead(
    holdfast_kit: Kit, client: httpx.Client, outside: FakeWeb
) -> None:
    reporter = Reporter(outside.sentry_dsn)
    app.hf.registry.on_failure.append(reporter)
    try:
        imported(client, outside.url(SHOP, "/broken/1?session=s3cr3t&mail=ann@example.org"))
        holdfast_kit.drain(with_retries=True, raise_errors=False)
    finally:
        app.hf.registry.on_failure.remove(reporter)
        reporter.close()
    retried, dead = outside.events
    assert (retried["level"], dead["level"]) == ("warning", "error")
    assert "job dead" not in json.dumps(retried)
    (crumb,) = dead["breadcrumbs"]["values"]
    assert crumb["message"] == "job dead" and crumb["data"]["task"] == "links.enrich"
    assert dead["exception"]["values"][-1]["value"] == "[payload] answered 500"
    assert not any(word in json.dumps(outside.events) for word in ("s3cr3t", "ann@"))


# 3 Claim, 4 Concurrency, 5 Domain throttling: real worker processes


def worker(kit: Kit, folder: Path, name: str) -> Worker:
    quick = {
        "HOLDFAST_LOG_FORMAT": "json",
        "HOLDFAST_WINDOW": 0.5,
        "HOLDFAST_UPKEEP": 0.2,
        "LINKS_BACKOFF": 0.2,
        "LINKS_LOCK_TTL": 2,
        "LINKS_FETCH_TIMEOUT": 20,
    }
    return Worker("links.app:hf", folder, name, HOLDFAST_DSN=kit.dsn, **quick)


def test_two_workers_fetch_each_page_once_and_two_at_once_of_a_domain(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb, tmp_path: Path
) -> None:
    pages = [outside.url(host, f"/slow/{n}") for n in range(10) for host in (NEWS, WIKI, SHOP)]
    refused = [outside.url("127.0.0.23", f"/forbidden/{n}?session=s3cr3t") for n in range(4)]
    with at_work(*(worker(holdfast_kit, tmp_path, name) for name in ("one", "two"))) as both:
        key = imported(client, *pages, *pages, *refused, outside.url(SHOP, "/broken/1"))
        wait_for("35 jobs", lambda: sum(job["status"] in ("succeeded", "dead") for job in jobs_of(db)) == 35)
    assert [each.process.returncode for each in both] == [0, 0]
    assert client.get(f"/imports/{key}").json()["status"] == "succeeded"
    assert len(outside.enriched()) == 30 and set(outside.enriched().values()) == {1}
    assert {host: outside.most[host] for host in (NEWS, WIKI, SHOP)} == {NEWS: 2, WIKI: 2, SHOP: 2}
    lines = [json.loads(line) for each in both for line in each.log.read_text().splitlines()]
    windows = [line for line in lines if line["event"] == "window"]
    assert len({line["worker"] for line in windows}) == 2  # both took part
    assert all(line["running"] <= 10 for line in windows)
    sums = {
        name: sum(line[name] for line in windows) for name in ("batch_claimed_count", "success_count", "fail_count")
    }
    assert sums == {"batch_claimed_count": 39, "success_count": 33, "fail_count": 6}  # with three of the import
    assert any("domain:127.0.0.23" in line.get("top_failure_keys", {}) for line in windows)
    ended = [line for line in lines if line["event"] == "job dead"]
    assert len(ended) == 5 and all(line["job_duration_ms"] > 0 for line in ended)
    (block,) = app.hf.dead.blocks()
    assert str(block.reason).endswith("answered 403") and "s3cr3t" not in json.dumps([block.reason, *lines])


def test_a_job_of_a_killed_worker_is_taken_back_when_its_lock_is_too_old(
    holdfast_kit: Kit, client: httpx.Client, db: psycopg.Connection[Any], outside: FakeWeb, tmp_path: Path
) -> None:
    imported(client, outside.url(NEWS, "/hang/1"))
    with at_work(worker(holdfast_kit, tmp_path, "one")) as (first,):
        wait_for("a page that hangs", lambda: outside.requests[NEWS, "/hang/1"])
        running = the_job(db)
        assert running["status"] == "running" and running["locked_at"] and running["attempts"] == 1
        first.kill()
    with at_work(worker(holdfast_kit, tmp_path, "two")) as (second,):
        wait_for("the job's end", lambda: the_job(db)["status"] == "succeeded")
    assert the_job(db)["attempts"] == 2 and the_job(db)["locked_by"] != running["locked_by"]
    assert running["locked_by"] in second.log.read_text()  # the log names the worker that lost it


def test_the_visible_run_shows_no_broken_promise(holdfast_server: str) -> None:
    command = [sys.executable, "-m", "links"]
    with scratch_database(holdfast_server) as dsn:
        env = os.environ | {"HOLDFAST_DSN": dsn, "BOOKMARKS": "60"}
        ran = subprocess.run(
            command, cwd=HERE.parent, env=env, capture_output=True, text=True, timeout=110, check=False
        )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert ran.stdout.count("PASS") == 15 and "FAIL" not in ran.stdout and not ran.stderr
