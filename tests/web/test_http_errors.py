"""Errors in a request are reported with their place and value; and what the document says of headers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.web import app
from tests.support.serving import http_fixture, problem, shop_fixture  # noqa: F401 - fixtures


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/jobs?limit=1000", None, "query.limit: expected int <= 500, got '1000'"),
        ("/jobs?since=yesterday", None, "got 'yesterday'"),
        ("/jobs", {"task": "t", "priority": 9}, "got 9"),
        ("/jobs", {"task": "t", "priorty": 1}, "body.priorty: no such field; did you mean 'priority'?"),
        ("/jobs", {"task": "t" * 2000}, "body.task: "),
    ],
)
async def test_an_error_is_reported_with_the_value(
    http: httpx.AsyncClient, path: str, body: Any, expected: str
) -> None:
    found = await (http.get(path) if body is None else http.post(path, json=body))
    detail = problem(found, 422, "invalid")["detail"]
    assert expected in detail and "Value error" not in detail and len(detail) < 500


async def test_a_secret_is_not_repeated(http: httpx.AsyncClient) -> None:
    body = {"url": "http://127.0.0.1:1/x", "secret": "whsec_short"}
    assert "whsec_short" not in problem(await http.post("/webhooks/endpoints", json=body), 422, "invalid")["detail"]


def test_the_document_knows_the_headers(hf: Holdfast) -> None:
    made = app(hf)
    for _ in range(2):  # it is kept, and must not grow
        paths = made.openapi()["paths"]
        assert [p["name"] for p in paths["/v1/jobs"]["post"]["parameters"]] == ["Idempotency-Key"]
        operation = paths["/v1/jobs/{job_id}"]["get"]
        assert [p["name"] for p in operation["parameters"]].count("If-None-Match") == 1
        assert "ETag" in operation["responses"]["200"]["headers"] and "content" in operation["responses"]["200"]
    assert "parameters" not in paths["/v1/workers"]["get"]


@pytest.mark.parametrize(("setting", "expected"), [("", "is not set"), (f"{'x' * 20},short", "has one of 5")])
def test_a_tick_endpoint_says_what_its_secrets_are(hf: Holdfast, setting: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"at least 16 characters, and HOLDFAST_TICK_SECRETS {expected}"):
        app(Holdfast(hf.settings.dsn, tick_secrets=setting), tick_endpoint=True)


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/jobs", {"stauts": "dead"}, "query.stauts: no such parameter; did you mean 'status'?"),
        ("/jobs/018f2c5e-7d1a-7c3b-9f00-2a4b6c8d0e1f", {"xyz": "1"}, "query.xyz: no such parameter; known: wait"),
        ("/webhooks/endpoints", {"limit": "1"}, "query.limit: no such parameter; known: none"),
    ],
    ids=["near", "far", "none"],
)
async def test_a_parameter_that_is_not_known_is_not_passed_over(
    http: httpx.AsyncClient, path: str, query: dict[str, str], expected: str
) -> None:
    assert problem(await http.get(path, params=query), 422, "invalid")["detail"] == expected


async def test_all_errors_of_a_body_are_reported(http: httpx.AsyncClient) -> None:
    async def detail_of(path: str, content: str, kind: str = "application/json") -> str:
        response = await http.post(path, content=content, headers={"Content-Type": kind})
        return str(problem(response, 422, "invalid")["detail"])

    form = "application/x-www-form-urlencoded"
    assert await detail_of("/jobs", '{"task": "shop.fail"}', form) == (
        "body: send a JSON object with task, and Content-Type: application/json"
    )
    assert await detail_of("/jobs/many", "[]") == "body: send a JSON object with jobs"
    assert (await detail_of("/jobs", '{"task": "shop.fail" "')).startswith("body: not JSON at character 21: ")
    detail = await detail_of("/jobs", '{"task": 1, "delay": -1, "prioriti": 1}')
    assert all(each in detail for each in ("body.task: ", "; body.delay: ", "; body.prioriti: "))
