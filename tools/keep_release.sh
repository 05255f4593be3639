#!/usr/bin/env bash
# Keeps a release for the upgrade test: builds the wheel of a tagged commit into tests/releases, in place of the one before.
#   keep_release.sh PYTHON TAG
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/$1" tag="$2" kept="$PWD/tests/releases"
git rev-parse --verify --quiet "$tag^{commit}" >/dev/null || { echo "error: there is no commit '$tag'; tag the release first" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git archive "$tag" | tar -x -C "$work"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$tag")
export SOURCE_DATE_EPOCH
mkdir -p "$kept"
(cd "$work" && "$python" -m hatchling build -t wheel -d "$work/dist" >/dev/null)
rm -f "$kept"/*.whl
cp "$work"/dist/*.whl "$kept"
ls -l "$kept"
