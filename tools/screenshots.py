"""Takes the pictures of docs/pictures: each page of the dashboard of a shop at work, light and dark."""

from __future__ import annotations

import argparse
import io
import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from holdfast import Holdfast  # noqa: E402 - tests is found from here on
from holdfast.store.dev.embedded import EmbeddedPostgres  # noqa: E402
from tests.support import browsing  # noqa: E402
from tests.support.storefront import OPERATOR, Storefront, opened  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
NARROW = ("overview", "jobs")
LEFT_OUT = ("waiting job", "rule", "preview")  # pages that look like others
WIDE, PHONE = {"width": 1240, "height": 780}, {"width": 375, "height": 780}
COLOURS = 80
TALLEST = 900  # pixels


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="names of pages, such as overview; default: all")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--tallest", type=int, default=TALLEST, help="pixels of a picture's height")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # jobs fail on purpose
    size = 0
    with (
        tempfile.TemporaryDirectory(prefix="hf-pictures-") as folder,
        database(Path(folder)) as dsn,
        opened(dsn) as shop,
        browsing.served(shop.hf) as base,
        browsing.chromium() as browser,
    ):
        for name, data in pictures(browser, shop, base, given.pages, given.tallest):
            (given.folder / f"{name}.png").write_bytes(data)
            size += len(data)
            print(f"{len(data):8,} {name}")
    print(f"{size:8,} bytes in all")


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """Run a server with a migrated database for the length of a block."""
    with EmbeddedPostgres(folder / "postgres") as server:
        dsn = server.dsn("postgres")
        with Holdfast(dsn) as hf:
            hf.migrate()
        yield dsn


def pictures(browser: Any, shop: Storefront, base: str, names: list[str], tallest: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the PNG of each picture."""
    token, _ = shop.hf.tokens.create(OPERATOR, tenant=None, scopes=["admin"], by="ada")
    wanted = {name: path for name, path in shop.paths.items() if name in names or (not names and name not in LEFT_OUT)}
    for scheme in ("light", "dark"):
        for screen, size in (("", WIDE), ("narrow", PHONE)):
            context = browser.new_context(base_url=base, viewport=size, color_scheme=scheme, reduced_motion="reduce")
            page = context.new_page()
            if not screen and (not names or "sign-in" in names):
                page.goto("/sign-in")
                yield f"sign-in-{scheme}", shot(page, tallest)
            browsing.sign_in(context, token)
            for name, path in wanted.items():
                if not screen or name in NARROW:
                    page.goto(path)
                    yield "-".join(filter(None, (name.replace(" ", "-"), screen, scheme))), shot(page, tallest)
            context.close()


def shot(page: Any, tallest: int) -> bytes:
    """Return the picture of a page with few colors, cut off below."""
    height = min(tallest, page.evaluate("document.documentElement.scrollHeight"))
    clip = {
        "x": 0,
        "y": 0,
        "width": page.evaluate("document.body.clientWidth"),
        "height": height,
    }  # without the scroll bar's place
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
    out = io.BytesIO()
    taken.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
