"""The OpenAPI document and the API reference, as a page without scripts or foreign hosts."""

from __future__ import annotations

import html
import re
import shlex
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web import app
from holdfast.web.examples import curl
from holdfast.web.pages import FOLDER, STATIC, linked, schema_text
from tests.support import serving
from tests.support.serving import shop_fixture  # noqa: F401 - a fixture


class Page(HTMLParser):
    """The ids, links, tags and open elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.targets.append(value or "")


async def test_the_reference_shows_every_path_and_type_and_needs_no_token(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        response = await http.get("/docs")
        document = (await http.get("/openapi.json")).json()
    assert response.status_code == 200 and response.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(response.text)
    operations = [each["operationId"] for ways in document["paths"].values() for each in ways.values()]
    assert set(page.ids) == {"main", *operations, *document["components"]["schemas"]}
    assert len(page.ids) == len(set(page.ids))
    assert {each[1:] for each in page.targets if each.startswith("#")} <= set(page.ids), "every link has a target"
    for field in ("max_attempts", "Seconds to wait until it has ended.", "integer, 0 to 3", "Idempotency-Key"):
        assert field in response.text


async def test_the_reference_loads_nothing_from_elsewhere_and_runs_no_script(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        response = await http.get("/docs")
        css = [await http.get(f"/static/{name}") for name in ("dashboard.css", "docs.css")]
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'") and "unsafe" not in policy
    page = Page(response.text)
    assert page.tags.isdisjoint({"script", "style", "iframe", "img"}) and "style" not in page.attributes
    assert not any(name.startswith("on") for name in page.attributes)
    assert all(each == "/" or each.startswith(("#", "/v1/")) for each in page.targets)
    assert "light-dark(" in css[0].text
    for each in css:
        assert each.headers["content-type"] == "text/css; charset=utf-8"
        assert not re.search(r"url\(|@import|https?:", each.text)
    assert {f"/v1/static/{name}" for name in ("dashboard.css", "docs.css", "icon.svg")} <= set(page.targets)


async def test_the_reference_has_the_theme_of_the_dashboard_and_leads_back_to_it(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        assert 'data-theme="auto"' in (await http.get("/docs")).text
        for theme, shown in (("dark", "dark"), ('"><b>', "auto")):
            response = await http.get("/docs", headers={"Cookie": f"holdfast_theme={theme}"})
            assert f'data-theme="{shown}"' in response.text
        assert 'class="brand" href="/"' in response.text


async def test_each_operation_has_an_example_that_the_service_accepts(shop: Holdfast) -> None:
    """The commands are read as a shell reads them, and sent: none is refused as bad input."""
    tried = 0
    async with serving.client(shop, serving.token(shop, None)) as http:
        for path, ways in app(shop).openapi()["paths"].items():
            for method, operation in ways.items():
                words = shlex.split(curl(path, method, operation))
                url = next(each for each in words if each.startswith("localhost:8000/v1/"))
                body = words[words.index("-d") + 1] if "-d" in words else None
                headers = {"Content-Type": "application/json"} if body else {}
                sent = url.removeprefix("localhost:8000/v1")
                async with http.stream(method.upper(), sent, content=body, headers=headers) as response:
                    assert response.status_code not in (400, 401, 403, 405, 415), (words, await response.aread())
                    detail = (await response.aread()).decode() if response.status_code == 422 else ""
                assert not detail or "app.send" in detail, (words, detail)  # the task of the README
                tried += 1
    assert tried > 60


async def test_the_reference_shows_the_scope_and_the_examples_below_the_mounted_path(shop: Holdfast) -> None:
    transport = httpx.ASGITransport(app(shop), root_path="/holdfast")
    async with httpx.AsyncClient(transport=transport, base_url="http://site/holdfast") as http:
        text = html.unescape((await http.get("/v1/docs")).text)
    assert "curl localhost:8000/holdfast/v1/jobs \\\n" in text
    assert "Needs a token with the scope <code>operate</code>, for all tenants." in text


@pytest.mark.parametrize("name", ["", "nothing.css", "..%2Fapp.py", "%2Fetc%2Fpasswd"])
async def test_only_known_files_are_served(shop: Holdfast, name: str) -> None:
    async with serving.client(shop) as http:
        assert (await http.get(f"/static/{name}")).status_code == 404


def test_every_file_of_the_pages_is_there(shop: Holdfast) -> None:
    assert {each.name for each in (FOLDER / "static").iterdir() if each.is_file()} <= set(STATIC)
    assert all((FOLDER / "static" / each).is_file() for each in STATIC)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "minLength": 1, "maxLength": 200}, "string, 1 to 200 characters"),
        ({"anyOf": [{"type": "integer", "maximum": 2000}, {"type": "null"}]}, "integer, up to 2,000 or null"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Job"}, "maxItems": 9}, "Job[], up to 9 items"),
        ({"enum": ["a", "b"]}, "a | b"),
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({}, "any"),
    ],
)
def test_a_schema_is_shown_in_words(schema: dict[str, Any], words: str) -> None:
    assert schema_text(schema) == words


def test_a_schema_links_to_each_of_its_types() -> None:
    job = {"$ref": "#/components/schemas/Job"}
    assert linked({"type": "array", "items": job}) == '<a href="#Job">Job</a>[]'
    assert linked({"anyOf": [job, {"enum": ["<b>", "Job2"]}]}) == '<a href="#Job">Job</a> or &lt;b&gt; | Job2'


def test_the_document_describes_fields_by_their_docstrings(hf: Holdfast) -> None:
    document = app(hf).openapi()
    job = document["components"]["schemas"]["Job"]
    assert job["properties"]["delay"]["description"] == "Seconds from now before which it does not start."
    (error,) = [each for each in document["paths"]["/v1/jobs"]["get"]["parameters"] if each["name"] == "error"]
    assert error["description"] == "Type or code of the last error." and error["required"] is False
