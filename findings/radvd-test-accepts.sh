#!/bin/sh
# Question: Does `radvd -c`, the test of a configuration, find that AdvLinkMTU 9000 does not fit a rail with an MTU of 1500?
# Memory said: yes, and radvd does not start with such a file.
# What is so: the test, which by radvd(8) does startup tests, ends with `syntax ok` and 0. The daemon then writes one line, runs on, and
#   advertises nothing on this netdev, so that its hosts get neither address nor route. The same holds for a netdev that does not exist
#   and for intervals out of range.
# Versions: radvd 2.19-1+b1 (Debian 12); the same messages with 2.20 (Debian 13).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm radvd=1:2.19-1+b1 libbsd0=0.11.7-2 libmd0=1.0.4-2

# The network namespace of the rail's node, and of a host that accepts advertisements.
cat > "$work/inside" << 'INSIDE'
set -eu
ip link add rail0 type veth peer name host0
unshare --net sleep 60 &
host=$!
while [ "$(readlink "/proc/$host/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set host0 netns "$host"
nsenter --net="/proc/$host/ns/net" ip link set host0 up
ip link set rail0 up
sleep 2 # until rail0 has its link-local address
"$1/usr/sbin/radvd" --nodaemon --config "$1/radvd.conf" --logmethod stderr --pidfile "$1/pid" 2> "$1/log" &
radvd=$!
for _ in 1 2 3 4 5 6 7 8; do
  sleep 1
  nsenter --net="/proc/$host/ns/net" ip -6 address show dev host0 scope global | sed -n 's/.*inet6 \(fd00:9:\).*/\1/p' > "$1/address"
  [ ! -s "$1/address" ] || break
done
echo "$(head -n 1 "$1/address")$(kill -0 "$radvd" && echo ", radvd runs")"
kill "$radvd" "$host"
INSIDE
# advertise OPTION: the exit code of the test, the prefix that the host has after 8 s, and whether radvd still runs.
advertise() {
  printf 'interface rail0 { AdvSendAdvert on; MaxRtrAdvInterval 4; MinRtrAdvInterval 3; %s prefix fd00:9::/64 { }; };\n' "$1" \
    > "$work/radvd.conf"
  code=0
  "$work/usr/sbin/radvd" --configtest --config "$work/radvd.conf" --logmethod stderr 2> "$work/test" || code=$?
  echo "test $code, host has $(unshare --net sh "$work/inside" "$work")"
}
chmod 755 "$work"
export LD_LIBRARY_PATH="$work/usr/lib/x86_64-linux-gnu:$work/lib/x86_64-linux-gnu"
expect "AdvLinkMTU 1500" "$(advertise 'AdvLinkMTU 1500;')" "test 0, host has fd00:9:, radvd runs"
expect "AdvLinkMTU 9000" "$(advertise 'AdvLinkMTU 9000;')" "test 0, host has , radvd runs"
expect "log" "$(grep -o 'AdvLinkMTU for rail0.*' "$work/log" | head -n 1)" "AdvLinkMTU for rail0 (9000) must be zero or between 1280 and 1500"
