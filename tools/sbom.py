"""Writes a CycloneDX bill of materials (version 1.6, JSON) from requirements/dev.txt: what Holdfast and its
extras need, as locked. Packages that only work on Holdfast needs are left out."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.settings import VERSION

LOCK = Path(__file__).parent.parent / "requirements" / "dev.txt"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]*))?")
ROOT = "holdfast-jobs"


def pins() -> dict[str, str]:
    """Return the locked version of each package."""
    found = (PIN.match(line) for line in LOCK.read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(each[1]): each[2] for each in found if each is not None}


def needs(name: str, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Yield the requirements of an installed package with these extras, on this platform."""
    try:
        texts = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # of another platform or Python
        return
    for text in texts:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def closure(extras: Iterable[str]) -> dict[str, set[str]]:
    """Return the packages that Holdfast needs, directly or not, and what each of them needs."""
    found: dict[str, set[str]] = {}
    waiting = [(ROOT, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        for each in needs(name, wanted):
            other = canonicalize_name(each.name)
            if other != ROOT:
                found.setdefault(name, set()).add(other)
            if (step := (other, frozenset(each.extras))) not in seen:
                seen.add(step)
                waiting.append(step)
        found.setdefault(name, set())
    return found


def bill() -> dict[str, Any]:
    """Return the document."""
    versions = {**pins(), ROOT: VERSION}
    required, everything = closure([]), closure(["all"])
    names = sorted(name for name in everything if name in versions)
    references = {name: f"pkg:pypi/{name}@{versions[name]}" for name in names}
    serial = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(sorted(references.values())))  # the same for the same content
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": _component(ROOT, versions, "library", references)},
        "components": [
            {
                **_component(name, versions, "library", references),
                "scope": "required" if name in required else "optional",
            }
            for name in names
            if name != ROOT
        ],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[each] for each in everything[name] & set(names))}
            for name in names
        ],
    }


def _component(name: str, versions: dict[str, str], kind: str, references: dict[str, str]) -> dict[str, Any]:
    made = {
        "type": kind,
        "bom-ref": references[name],
        "name": name,
        "version": versions[name],
        "purl": references[name],
    }
    licence = _licence(name)
    return made if licence is None else {**made, "licenses": [{"expression": licence}]}


def _licence(name: str) -> str | None:
    """Return the SPDX expression that a package declares, or None: older ones describe theirs in words."""
    try:
        return importlib.metadata.metadata(name).get("License-Expression")
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    made = bill()
    target.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"{target}: {len(made['components'])} components")
