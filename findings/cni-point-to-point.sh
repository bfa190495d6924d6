#!/bin/sh
# Question: Can host-local give out the addresses of a /31, as on links between a NIC and its leaf switch, or of a /127?
# Memory said: 1.1.1 refuses it, newer versions allow it (RFC 3021, RFC 6164).
# What is so: 1.1.1 and 1.9.1 refuse both as too small, also if rangeStart and rangeEnd name the one address. The plugin static takes
#   such an address.
# Versions: containernetworking-plugins 1.1.1+ds1-3+b5 (Debian 12); 1.9.1+ds1-1 (sid) as said.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
fetch "$work" bookworm containernetworking-plugins=1.1.1+ds1-3+b5

# add PLUGIN IPAM: the answer in one line.
add() {
  printf '{"cniVersion":"1.0.0","name":"rail0","ipam":{"type":"%s","dataDir":"%s",%s}}' "$1" "$work/data" "$2" |
    CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=net1 CNI_PATH=$work/usr/lib/cni "$work/usr/lib/cni/$1" |
    tr -d '\n\t ' || true
  echo
}
small='{"code":999,"msg":"invalidrangeset0:Network%stoosmalltoallocatefrom"}'
# shellcheck disable=SC2059 # the format is above
expect "host-local, /31" "$(add host-local '"ranges":[[{"subnet":"10.9.0.0/31"}]]')" "$(printf "$small" 10.9.0.0/31)"
# shellcheck disable=SC2059
expect "host-local, one address of a /31" "$(add host-local '"ranges":[[{"subnet":"10.9.0.0/31","rangeStart":"10.9.0.1","rangeEnd":"10.9.0.1"}]]')" \
  "$(printf "$small" 10.9.0.0/31)"
# shellcheck disable=SC2059
expect "host-local, /127" "$(add host-local '"ranges":[[{"subnet":"fd00:9::/127"}]]')" "$(printf "$small" fd00:9::/127)"
expect "static, /31" "$(add static '"addresses":[{"address":"10.9.0.1/31","gateway":"10.9.0.0"}]')" \
  '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.1/31","gateway":"10.9.0.0"}],"dns":{}}'
