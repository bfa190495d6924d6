#!/bin/sh
# Question: Does a hook with `"hasBindMounts": false` run for containers without bind mounts?
# Memory said: yes, and not for containers with one.
# What is so: it never runs. `true` is the only value that can match; `false` makes the whole condition fail, also beside an annotation
#   that matches. The file is accepted without a message.
# Versions: podman 4.3.1+ds1-8+deb12u1+b3 (Debian 12).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
# shellcheck source=findings/podman
. "$(dirname "$0")/podman"
fetch_podman

mkdir "$work/hooks.d"
: > "$work/cdi/none.txt"
# hook CONDITION OPTION...: "runs" if a hook with this condition is in config.json.
hook() {
  printf '{"version": "1.0.0", "hook": {"path": "%s"}, "when": {%s}, "stages": ["createRuntime"]}' "$work/runtime" "$1" \
    > "$work/hooks.d/hook.json"
  shift
  case $(spec_of --annotation job=a "$@") in
    *'"createRuntime"'*) echo runs ;;
    *) echo "does not run" ;;
  esac
}
annotation='"annotations": {"^job$": "^a$"}'
expect "annotation" "$(hook "$annotation")" runs
expect "annotation, hasBindMounts true, with a mount" "$(hook "$annotation, \"hasBindMounts\": true" -v /usr:/mnt)" runs
expect "annotation, hasBindMounts true, without" "$(hook "$annotation, \"hasBindMounts\": true")" "does not run"
expect "annotation, hasBindMounts false, without" "$(hook "$annotation, \"hasBindMounts\": false")" "does not run"
expect "annotation, hasBindMounts false, with a mount" "$(hook "$annotation, \"hasBindMounts\": false" -v /usr:/mnt)" "does not run"
