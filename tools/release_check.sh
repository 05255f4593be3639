#!/usr/bin/env bash
# Builds what a release would publish, and uses it as a newcomer does: from the wheel, in an empty environment.
#   release_check.sh PYTHON PIP_PYTHON    PYTHON builds; the environments are made of PIP_PYTHON
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/$1" base="$2"
work=$(mktemp -d)
worker=""
finish() {
    [ -z "$worker" ] || { kill "$worker" 2>/dev/null && wait "$worker" || true; }
    rm -rf "$work"
}
trap finish EXIT

echo "== build"
rm -rf dist
"$python" -m hatchling build -d dist >/dev/null
ls -l dist

echo "== metadata"
"$base" -m venv "$work/twine"
"$work/twine/bin/pip" install -q twine
"$work/twine/bin/twine" check --strict dist/*

echo "== install the wheel into an empty environment"
"$base" -m venv "$work/venv"
wheel=$(echo dist/*.whl)
"$work/venv/bin/pip" install -q "$wheel[dev]"
"$work/venv/bin/pip" check
"$work/venv/bin/holdfast" --version

echo "== the README's program"
cd "$work"
"$python" - "$OLDPWD/README.md" app.py <<'PYTHON'
import re, sys
program = re.search(r"```python\n(# app\.py.*?)```", open(sys.argv[1], encoding="utf-8").read(), re.S)
open(sys.argv[2], "w", encoding="utf-8").write(program[1])
PYTHON
export PATH="$work/venv/bin:$PATH" HOLDFAST_DSN="embedded:$work/.holdfast"
holdfast migrate
holdfast worker app:hf --queues mail 2>worker.log &
worker=$!
read -r id status < <(python app.py)
echo "job $id: $status"
for _ in $(seq 300); do
    status=$(holdfast jobs show "$id" --json | python -c 'import json, sys; print(json.load(sys.stdin)["status"])')
    [ "$status" != succeeded ] || break
    sleep 0.1
done
echo "job $id: $status"
[ "$status" = succeeded ] || { cat worker.log >&2; exit 1; }
kill "$worker"
wait "$worker"
worker=""
echo "== the release is fit to publish"
