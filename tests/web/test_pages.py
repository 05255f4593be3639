"""The OpenAPI document and the API reference, as a page without scripts or foreign hosts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.web import app
from holdfast.web.pages import FOLDER, STATIC, schema_text
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
    assert set(page.ids) == {*operations, *document["components"]["schemas"]}
    assert len(page.ids) == len(set(page.ids))
    assert {each[1:] for each in page.targets if each.startswith("#")} <= set(page.ids), "every link has a target"
    for field in ("max_attempts", "Seconds to wait until it has ended.", "integer, 0 to 3", "Idempotency-Key"):
        assert field in response.text


async def test_the_reference_loads_nothing_from_elsewhere_and_runs_no_script(shop: Holdfast) -> None:
    async with serving.client(shop) as http:
        response = await http.get("/docs")
        css = await http.get("/static/holdfast.css")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'") and "unsafe" not in policy
    page = Page(response.text)
    assert page.tags.isdisjoint({"script", "style", "iframe", "img"}) and "style" not in page.attributes
    assert not any(name.startswith("on") for name in page.attributes)
    assert all(each.startswith(("#", "/v1/")) for each in page.targets)
    assert css.headers["content-type"] == "text/css; charset=utf-8" and "light-dark(" in css.text
    assert not re.search(r"url\(|@import|https?:", css.text)


@pytest.mark.parametrize("name", ["", "nothing.css", "..%2Fapp.py", "%2Fetc%2Fpasswd"])
async def test_only_known_files_are_served(shop: Holdfast, name: str) -> None:
    async with serving.client(shop) as http:
        assert (await http.get(f"/static/{name}")).status_code == 404


def test_every_file_of_the_pages_is_there(shop: Holdfast) -> None:
    assert {each.name for each in (FOLDER / "static").iterdir() if each.is_file()} == set(STATIC)


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


def test_the_document_describes_fields_by_their_docstrings(hf: Holdfast) -> None:
    document = app(hf).openapi()
    job = document["components"]["schemas"]["Job"]
    assert job["properties"]["delay"]["description"] == "Seconds from now before which it does not start."
    (error,) = [each for each in document["paths"]["/v1/jobs"]["get"]["parameters"] if each["name"] == "error"]
    assert error["description"] == "Type or code of the last error." and error["required"] is False
