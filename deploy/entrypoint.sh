#!/bin/sh
# Runs `worker`, `serve` or `migrate`; any other arguments are those of `holdfast`: docker run IMAGE doctor.
# APP names the application where the arguments do not: app:hf is the object `hf` of app.py in the working directory.
set -eu

command="${1:-worker}"
[ "$#" -eq 0 ] || shift

case "$command" in
worker | serve)
    case "${1:-}" in
    "" | -*) set -- "${APP:-app:hf}" "$@" ;;
    esac
    ;;
esac

case "$command" in
serve) exec holdfast serve "$@" --host 0.0.0.0 ;;
*) exec holdfast "$command" "$@" ;; # exec: signals reach the program
esac
