"""The web tier: accepts a file, creates the import's jobs, shows their progress. It never claims one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from links.app import hf, imported, place
from links.bookmarks import parse

MOST_BODY = 32 * 1024 * 1024
PART = 50  # bookmarks that one job places
User = Annotated[str, Header(alias="X-User-Id", min_length=1, max_length=200)]  # stands for your login


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    async with AsyncConnectionPool(hf.database.url, open=False, kwargs={"row_factory": dict_row}) as api.state.pool:
        yield
    await hf.aclose()


api = FastAPI(title="links", lifespan=lifespan)


async def import_job(request: Request, import_id: UUID, user: User) -> dict[str, Any]:
    """Return the requested import; another user's import is not found."""
    async with request.app.state.pool.connection() as conn:
        sql = "select * from links.import_jobs where id = %s and user_id = %s"
        row: dict[str, Any] | None = await (await conn.execute(sql, [import_id, user])).fetchone()
        if row:
            return row
    raise HTTPException(404, "no such import")


Import = Annotated[dict[str, Any], Depends(import_job)]


@api.post("/imports", status_code=202)
async def create_import(request: Request, user: User) -> dict[str, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            raise HTTPException(413, f"a bookmarks file has at most {MOST_BODY:,} bytes")
    found = await asyncio.to_thread(parse, body.decode("utf-8", "replace"))
    if not found:
        raise HTTPException(422, "there are no bookmarks in this file")
    # One transaction: the import is there with all of its bookmarks, or not at all.
    async with (
        request.app.state.pool.connection() as conn,
        hf.batch("chrome_html", tenant=user, on_done=imported, conn=conn) as batch,
    ):
        await conn.execute("insert into links.imports values (%s, %s)", [batch.id, len(found)])
        parts = [found[first : first + PART] for first in range(0, len(found), PART)]
        await place.using(batch=batch).aenqueue_many(enumerate(parts))
    return {"id": batch.id, "total_items": len(found)}


@api.get("/imports/{import_id}")
async def show_import(row: Import) -> dict[str, Any]:
    return row


@api.post("/imports/{import_id}/cancel")
async def cancel_import(row: Import) -> dict[str, int]:
    """Cancel what waits and ask what runs to stop. Links that were placed stay, and so do their jobs."""
    return {"canceled_items": await hf.batches.acancel(str(row["id"]))}
