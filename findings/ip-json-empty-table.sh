#!/bin/sh
# Question: Which JSON does `ip -j route show table N` print for a routing table, such as that of a rail, that has no route yet?
# Memory said: the empty list, `[]`, and exit code 0, as `ip -j rule show` does.
# What is so: exit code 2 and the text `[`, which no JSON parser accepts, because the kernel has no table before its first route. 6.15
#   closes the bracket and also exits with 2.
# Versions: iproute2 6.1.0-3 (Debian 12); 6.15.0-1 (Debian 13) as said.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm iproute2=6.1.0-3 libbpf1=1:1.1.2-0+deb12u1 libelf1=0.188-2.1 libmnl0=1.0.4-3 libxtables12=1.8.9-2

# run_ip ARGUMENTS...: the output in one line, and the exit code, in a network namespace without routes.
run_ip() {
  code=0
  LD_LIBRARY_PATH=$work/usr/lib/x86_64-linux-gnu:$work/lib/x86_64-linux-gnu unshare --net "$work/bin/ip" "$@" > "$work/out" 2> "$work/err" ||
    code=$?
  echo "$(tr -d '\n' < "$work/out") exit $code"
}
expect "rule show table 100" "$(run_ip -j rule show table 100)" "[] exit 0"
expect "route show table 100" "$(run_ip -j route show table 100)" "[ exit 2"
expect "error" "$(head -n 1 "$work/err")" "Error: ipv4: FIB table does not exist."
