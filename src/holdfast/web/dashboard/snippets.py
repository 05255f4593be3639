"""A job as code that enqueues it once more: Python, curl and SQL."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.job import PublicJob

LONGEST = 10_000  # bytes of arguments; longer ones are not copied from a page


def of(job: PublicJob, keys: Sequence[str] | None, schema: str, base: str) -> Mapping[str, str]:
    """Return the snippets by name; none for very long arguments. keys are the job's limits, without which neither
    Python nor SQL would enqueue the same job; None: the viewer may not see them."""
    args = bytes(job.args) if isinstance(job.args, msgspec.Raw) else msgspec.json.encode(job.args)
    if len(args) > LONGEST:
        return {}
    text = args.decode("utf-8", "replace")
    service = {"curl": curl(job, text, base)}
    if keys is None:
        return service
    return {"Python": python(job, text, keys), **service, "SQL": sql(job, text, keys, schema)}


def python(job: PublicJob, args: str, keys: Sequence[str]) -> str:
    tenant = "" if job.tenant is None else f", tenant={job.tenant!r}"
    limits = f", limits={list(keys)!r}" if keys else ""
    options = f"queue={job.queue!r}{tenant}, priority={job.priority}{limits}"
    return f"hf.jobs.enqueue({job.task!r}, {args.encode()!r}, {options})"


def curl(job: PublicJob, args: str, base: str) -> str:
    """Return a request; the service applies the task's limits itself."""
    options: dict[str, Any] = {"queue": job.queue, "priority": job.priority}
    if job.tenant is not None:
        options["tenant"] = job.tenant
    body = msgspec.json.encode({"task": job.task, "args": msgspec.Raw(args.encode()), **options}).decode()
    return (
        f'curl -X POST {shlex.quote(f"{base}/v1/jobs")} -H "Authorization: Bearer $HOLDFAST_TOKEN" '
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )


def sql(job: PublicJob, args: str, keys: Sequence[str], schema: str) -> str:
    values = {"p_task": job.task, "p_payload": args, "p_queue": job.queue, "p_tenant": job.tenant}
    given = [f"{name} => {_literal(value)}" for name, value in values.items() if value is not None]
    given.append(f"p_priority => {job.priority}")
    if keys:
        given.append(f"p_keys => array[{', '.join(map(_literal, keys))}]")
    return f"select * from {schema}.enqueue({', '.join(given)})"  # noqa: S608


def _literal(text: str) -> str:
    """Return a literal of SQL that means the same whatever the server says of backslashes."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in text else "E'" + quoted.replace("\\", "\\\\") + "'"
