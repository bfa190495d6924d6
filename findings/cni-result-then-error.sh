#!/bin/sh
# Question: Which answer does the IPAM plugin host-local print if CNI_NETNS is the network namespace that it runs in, as for a container in the
#   host's network?
# Memory said: a result, or an error; never both. An ADD that failed keeps no address.
# What is so: 1.9.1 allocates the address and prints the result, then tests the namespace, prints an error as a second JSON object and
#   exits with 1. The address stays allocated until DEL, which releases it and then exits with 1 too. A caller that parses stdout as one
#   JSON text fails at the second object. 1.1.1 has no such test.
# Versions: containernetworking-plugins 1.9.1+ds1-1 (sid).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" sid containernetworking-plugins=1.9.1+ds1-1

# plugin COMMAND NETNS: its answer in one line, and its exit code.
plugin() {
  code=0
  printf '{"cniVersion":"1.0.0","name":"rail0","ipam":{"type":"host-local","dataDir":"%s/data","ranges":[[{"subnet":"10.9.0.0/24"}]]}}' \
    "$work" | CNI_COMMAND=$1 CNI_CONTAINERID=c1 CNI_NETNS=$2 CNI_IFNAME=net1 CNI_PATH=$work/usr/lib/cni \
    "$work/usr/lib/cni/host-local" > "$work/answer" || code=$?
  echo "$(tr -d '\n\t ' < "$work/answer") exit $code"
}
leases() {
  find "$work/data/rail0" -name '10.*' -printf '%f '
}
error='{"code":8,"msg":"plugin'"'"'snetnsandnetnsfromCNI_NETNSshouldnotbethesame"}'
expect "ADD" "$(plugin ADD /proc/self/ns/net)" \
  '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24","gateway":"10.9.0.1"}]}'"$error exit 1"
expect "addresses in use" "$(leases)" "10.9.0.2 "
expect "DEL" "$(plugin DEL /proc/self/ns/net)" "$error exit 1"
expect "addresses in use" "$(leases)" ""
