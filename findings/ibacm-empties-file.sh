#!/bin/sh
# Question: Is the address file of ibacm unchanged after `ib_acme -A`, which writes it, has failed because no HCA is there at that moment?
# Memory said: yes.
# What is so: it fails, after it has emptied the file. A boot script that runs it before the driver is loaded deletes the addresses that
#   an administrator wrote.
# Versions: ibacm 44.0-2 (Debian 12).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm ibacm=44.0-2 libibverbs1=44.0-2 libibumad3=44.0-2 libnl-3-200=3.7.0-0.2+b1 libnl-route-3-200=3.7.0-0.2+b1

mkdir "$work/etc-rdma"
echo "node1 mlx5_0 1 default" > "$work/etc-rdma/ibacm_addr.cfg"
code=0
# A machine without HCAs: an empty /sys/class.
LD_LIBRARY_PATH=$work/usr/lib/x86_64-linux-gnu:$work/lib/x86_64-linux-gnu unshare --mount sh -c \
  'mount -t tmpfs sysfs /sys/class && shift && exec "$@"' sh "$work" "$work/usr/bin/ib_acme" -A -D "$work/etc-rdma" \
  > "$work/output" 2>&1 || code=$?
expect "ib_acme -A" "$(head -n 1 "$work/output")" "ibv_get_device_list - no devices present?"
expect "exit code" "$code" 255
expect "bytes in the address file" "$(wc -c < "$work/etc-rdma/ibacm_addr.cfg")" 0
