#!/bin/sh
# Question: Does containerd report an import that names no file?
# Memory said: yes, it does not start, as 1.7 does not.
# What is so: 2.1.9 ignores it without a message. It expands only `*`: with `?` or brackets in the name, files that a shell would match
#   are left out, and their runtime handlers are missing.
# Versions: containerd 2.1.9+ds1-5 (sid); 1.7.24 (Debian 13) ends with `no such file or directory`.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
fetch "$work" sid containerd=2.1.9+ds1-5

mkdir "$work/conf.d"
printf 'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma]\nruntime_type = "io.containerd.runc.v2"\n' \
  > "$work/conf.d/10-rdma.toml"
# handler PATTERN: whether the handler of the file is in the configuration, how many lines containerd reports, and its exit code.
handler() {
  printf 'version = 3\nimports = ["%s"]\n' "$work/conf.d/$1" > "$work/config.toml"
  code=0
  "$work/usr/bin/containerd" --config "$work/config.toml" config dump > "$work/dump" 2> "$work/messages" || code=$?
  echo "$(grep -c 'runtimes.rdma]' "$work/dump" || true) handler, $(wc -l < "$work/messages") messages, exit $code"
}
expect "imports *.toml" "$(handler '*.toml')" "1 handler, 0 messages, exit 0"
expect "imports 1?-rdma.toml" "$(handler '1?-rdma.toml')" "0 handler, 0 messages, exit 0"
expect "imports [1]0-rdma.toml" "$(handler '[1]0-rdma.toml')" "0 handler, 0 messages, exit 0"
expect "imports absent.toml" "$(handler absent.toml)" "0 handler, 0 messages, exit 0"
