"""The service keeps to its OpenAPI document: whatever is sent, no failure, and responses as described."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import Holdfast
from holdfast.model.webhook import Event
from holdfast.web import app
from tests.conftest import wait_until
from tests.support import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
BUDGET = 60.0 if os.environ.get("HOLDFAST_TEST_LONG") else 20.0  # seconds for all endpoints together
ROUNDS = 5  # of requests to each, while there is time
SLOW = {"wait": 0}  # parameters that would make a request wait


@pytest.fixture
def shop(hf: Holdfast) -> Holdfast:
    return serving.with_tasks(hf)


@pytest.fixture
def url(shop: Holdfast) -> Iterator[str]:
    """The service on a real port, in a thread."""
    config = uvicorn.Config(app(shop), log_config=None, ws="none")
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(40)


def known(shop: Holdfast) -> dict[str, list[str]]:
    """Return ids of each kind that exist, so that some requests find something."""
    jobs = [shop.registry.tasks["shop.fail"].using(tenant=tenant).enqueue().id for tenant in ("acme", None)]
    with shop.batch("b", tenant="acme") as batch:
        shop.registry.tasks["shop.fail"].using(batch=batch).enqueue()
    endpoint = shop.webhooks.add("https://example.org/", tenant="acme")
    delivery = shop.webhooks.publish(None, Event("order.paid", {"a": 1}, tenant="acme")).deliveries[0]
    action = shop.actions.start("cancel", {"queue": "nothing"}, by="ada")
    message = shop.outbox.emit(None, "email", {"a": 1}, key="k", tenant="acme").id
    return {
        "job_id": [*jobs, delivery],
        "batch_id": [batch.id],
        "endpoint_id": [endpoint.id],
        "delivery_id": [delivery],
        "message_id": [message],
        "queue": ["default"],
        "action_id": [action.id],
        "fingerprint": ["0123456789abcdef", *(each.fingerprint for each in shop.dead.errors.list())],
    }


@pytest.mark.timeout(180)
def test_whatever_is_sent_the_response_is_one_that_the_document_describes(shop: Holdfast, url: str) -> None:
    ids, tried = known(shop), 0
    schema = schemathesis.openapi.from_url(f"{url}/v1/openapi.json", wait_for_schema=10)
    schema.config.update(base_url=url)
    operations = [each.ok() for each in schema.get_all_operations()]
    operations.sort(key=lambda each: each.method == "delete")  # a removed thing accepts nothing more
    assert len(operations) > 35
    ends = time.monotonic() + BUDGET
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {serving.token(shop, None)}"
        for place, operation in enumerate(operations):
            mine = time.monotonic() + (ends - time.monotonic()) / (len(operations) - place)
            for _ in range(ROUNDS):
                tried += _try(operation, session, ids)
                if time.monotonic() > mine:
                    break
    print(f"{tried} requests")
    assert tried > 5 * len(operations)


def _try(operation: Any, session: requests.Session, ids: dict[str, list[str]]) -> int:
    """Send what the document allows and what it does not, some of each."""
    tried = 0
    mode = schemathesis.GenerationMode
    cases = st.one_of(*(operation.as_strategy(generation_mode=each) for each in (mode.POSITIVE, mode.NEGATIVE)))

    @hypothesis.settings(
        max_examples=8,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases, real=st.booleans(), pick=st.integers(0, 10))
    def attempt(case: Any, real: bool, pick: int) -> None:
        nonlocal tried
        for name in case.path_parameters or {}:
            if real and name in ids:
                case.path_parameters[name] = ids[name][pick % len(ids[name])]
        if real and isinstance(case.body, dict) and "task" in case.body:
            case.body |= {"task": "shop.fail", "args": {}}
        for name, value in SLOW.items():
            if name in (case.query or {}):
                case.query[name] = value
        if operation.path.endswith("/events") and real:
            return  # a stream of a job that waits goes on for minutes
        tried += 1
        response = case.call(session=session, timeout=20)
        case.validate_response(response, checks=CHECKS)

    attempt()
    return tried
