# app.py
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from fastapi import FastAPI, HTTPException
from psycopg_pool import AsyncConnectionPool

from holdfast import Holdfast

DSN = os.environ["DATABASE_URL"]
hf = Holdfast(DSN)
pool = AsyncConnectionPool(DSN, open=False)


@hf.task()
async def confirm(order: int, email: str) -> str:
    return f"order {order} confirmed to {email}"


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield
    await hf.aclose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
async def place_order(item: str, email: str) -> dict[str, Any]:
    async with pool.connection() as conn:  # one transaction: committed at its end, rolled back by an error
        cursor = await conn.execute("insert into orders (item) values (%s) returning id", [item])
        (order,) = await cursor.fetchone()
        job = await confirm.using(conn=conn).aenqueue(order, email)
        taken = await conn.execute("update stock set pieces = pieces - 1 where item = %s and pieces > 0", [item])
        if not taken.rowcount:
            raise HTTPException(409, f"no {item} is left")  # neither the order nor its job has ever been there
    return {"order": order, "job": job.id}


@web.get("/jobs/{job_id}")
async def show_job(job_id: UUID) -> dict[str, Any]:
    info = await hf.jobs.aget(str(job_id))
    if info is None:
        raise HTTPException(404, "no such job")
    error = info.last_error and info.last_error["message"]  # its traceback is for you, not for callers
    return {"status": info.status, "result": info.result, "error": error}
