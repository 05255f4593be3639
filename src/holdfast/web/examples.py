"""Examples of requests, for the OpenAPI document and the API reference."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

ID = "018f2c5e-8a00-7000-8000-5a1b2c3d4e5f"
REASON = {"reason": "the provider is back"}
JOB = {"task": "app.send", "args": {"to": "ada@example.org"}}
FILTER = {"error": "TimeoutError", "since": "24h"}
BODIES: Mapping[str, Any] = {  # by the name of the body's type
    "Job": JOB | {"priority": 1, "delay": 60, "dedupe": "order-42"},
    "ManyJobs": {"jobs": [JOB, JOB | {"queue": "mail"}]},
    "JobIds": {"ids": [ID]},
    "Edit": {"args": {"to": "bob@example.org"}, "reason": "mistyped"},
    "NewBatch": {"name": "import", "jobs": [JOB], "open": True},
    "WhichDead": {"ids": [ID]} | REASON,
    "NewPreview": {"kind": "retry", "filter": FILTER},
    "NewAction": {"kind": "retry", "filter": FILTER} | REASON,
    "ReasonBody": REASON,
    "NewSignal": {"name": "approved:42", "value": {"by": "ann"}},
    "Rerun": {"from_step": "charge"} | REASON,
    "NewMessage": {"channel": "email", "payload": {"to": "ada@example.org"}, "key": "order-42"},
    "NewEndpoint": {"url": "https://example.org/hook", "events": ["order.paid"]},
    "EndpointChange": {"timeout": 10},
    "WhyDisabled": {"reason": "it moved"},
    "Rotation": {"keep_old_for": 3600},
    "NewEvent": {"type": "order.paid", "body": {"order": 42}},
    "LimitChange": {"key": "host:example.org", "concurrency": 2, "rate": 60, "per": 60},
    "OneKey": {"key": "host:example.org"} | REASON,
    "QueuePause": {"seconds": 600, "reason": "provider down"},
    "NewPause": {"key": "queue:mail", "seconds": 600, "reason": "provider down"},
    "Stop": {"reason": "maintenance"},
    "TickRequest": {"max_jobs": 100, "queues": ["mail"]},
}
PARAMETERS: Mapping[str, Any] = {"name": "mail", "fingerprint": "9f86d081884c7d65", "key": "host:example.org"}
HEADERS = {"token": "Authorization: Bearer $TOKEN", "secret": "X-Internal-Secret: $SECRET"}


def parameter(name: str) -> Any:
    """Return an example of a path's or a required query parameter: an id, unless it is listed."""
    return PARAMETERS.get(name, ID)


def curl(path: str, method: str, operation: Mapping[str, Any], root: str = "") -> str:
    """Return a command that calls an operation of the OpenAPI document; root is where the service is mounted."""
    words = ["curl", *([] if method in ("get", "post") else ["-X", method.upper()])]
    lines = [" ".join([*words, shlex.quote("localhost:8000" + root + _filled(path, operation.get("parameters", [])))])]
    lines += [f'-H "{HEADERS[scheme]}"' for each in operation.get("security", []) for scheme in each]
    if "requestBody" in operation:
        body = operation["requestBody"]["content"]["application/json"]["example"]
        lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(json.dumps(body))}"]
    elif method == "post":
        lines += ["-d ''"]
    return " \\\n  ".join(lines)


def _filled(path: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    needed = [each for each in parameters if each["required"]]
    for each in needed:
        path = path.replace("{" + each["name"] + "}", quote(each["example"], safe=""))
    query = "&".join(f"{each['name']}={quote(each['example'], safe=':')}" for each in needed if each["in"] == "query")
    return f"{path}?{query}" if query else path
