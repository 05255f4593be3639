"""The link enrichment worker: bookmarks are placed, and each link is enriched once. The numbers are defaults."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from holdfast import CONTEXT, Context, Dedupe, Holdfast, Limit, Retry
from links.bookmarks import Bookmark, canonical, domain
from links.fetch import Elsewhere, Web

N = int(os.environ.get("LINKS_CONCURRENCY", "10"))  # jobs at once in one worker, and the size of its claims
K = int(os.environ.get("LINKS_PER_DOMAIN", "2"))  # of one domain at once, over all workers
MAX_ATTEMPTS = 2
BACKOFF = float(os.environ.get("LINKS_BACKOFF", "300"))  # seconds after the first failure
LOCK_TTL = float(os.environ.get("LINKS_LOCK_TTL", "600"))  # seconds after which a dead worker's jobs are reclaimed
AGAIN = Retry.fixed(BACKOFF, max_attempts=MAX_ATTEMPTS)

# prefetch=0: a worker claims what it can start at once, so never more than N.
hf = Holdfast(queues="imports,enrichment", concurrency=N, claim_size=N, prefetch=0, lease=LOCK_TTL, renew=LOCK_TTL / 10)


@hf.resource
async def web() -> AsyncIterator[Web]:
    timeout = float(os.environ.get("LINKS_FETCH_TIMEOUT", "15"))
    async with Web(timeout, private=os.environ.get("LINKS_ALLOW_PRIVATE") == "yes") as session:
        yield session


@hf.task(name="links.place", queue="imports", priority=1, retry=AGAIN)
async def place(part: int, bookmarks: list[Bookmark], *, ctx: Context = CONTEXT) -> None:
    """Put some bookmarks of an import into the user's folders, and have new links enriched."""
    links: list[tuple[str, str, str, datetime | None]] = []
    wrong: list[str] = []
    for each in bookmarks:
        try:
            links.append((canonical(each.url), each.folder, each.title, each.added_at))
        except ValueError as error:
            wrong.append(str(error))
    columns = [list(column) for column in zip(*links, strict=True)] or [[]] * 4
    async with ctx.transaction() as conn:
        await enrich_new(conn, columns[0])
        await conn.execute(
            """insert into links.link_instances (user_id, import_job_id, folder, title, added_at, link_canonical_id)
               select %s, %s, kept.folder, kept.title, kept.added_at, link.id
               from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[]) as kept (url, folder, title, added_at)
               join links.canonical_links link on link.url = kept.url on conflict do nothing""",
            [ctx.tenant, ctx.batch_id, *columns],
        )
        await conn.execute(
            "insert into links.import_parts values (%s, %s, %s, %s, %s)",
            [ctx.batch_id, part, len(bookmarks), len(wrong), wrong[-1] if wrong else None],
        )


@hf.task(
    name="links.enrich",
    queue="enrichment",
    retry=AGAIN,
    timeout=60,
    dedupe=Dedupe(scope="success"),
    limits=[Limit("domain:{domain}", concurrency=K)],
)
async def enrich(link: str, url: str, domain: str, *, ctx: Context = CONTEXT, web: Web = web.value) -> None:
    """Read a link's page and store its head; the row and the job's success are committed together."""
    page = await web.read(url)
    async with ctx.transaction() as conn:
        if isinstance(page, Elsewhere):
            target = canonical(page.url)
            await enrich_new(conn, [target])
            await conn.execute(
                """update links.canonical_links set enriched_at = now(),
                   redirects_to = (select id from links.canonical_links where url = %s) where id = %s""",
                [target, link],
            )
        else:
            await conn.execute(
                """update links.canonical_links set title = %s, description = %s, icon = %s, og_image = %s,
                   content_type = %s, enriched_at = now() where id = %s""",
                [page.title, page.description, page.icon, page.og_image, page.content_type, link],
            )


async def enrich_new(conn: Any, urls: list[str]) -> None:
    """Store the new canonical links, each with its enrichment job: one transaction, so a link has one job
    forever. They are in the order of the urls: two imports of the same links must not wait for each other."""
    cursor = await conn.execute(
        """insert into links.canonical_links (url, domain) select * from unnest(%s::text[], %s::text[])
           on conflict (url) do nothing returning id::text as link, url, domain""",
        [ordered := sorted(set(urls)), [domain(url) for url in ordered]],
    )
    await enrich.using(conn=conn).aenqueue_many(await cursor.fetchall())


@hf.task(name="links.imported", queue="imports", priority=1)
async def imported(import_id: str, *, ctx: Context = CONTEXT) -> None:
    """Handle the end of the batch, once, after the last bookmark. An application would notify the user here."""
    if (done := await hf.batches.aget(import_id)) is not None:
        ctx.log.info(
            "import ended", extra={"fields": {"import": import_id, "status": done.status, "total": done.total}}
        )
