#!/bin/sh
# Question: Does ibstat show an HCA with a name of 20 characters or more?
# Memory said: ibstat shows every HCA; the kernel and `rdma dev set NAME name NEW` take up to 63 characters.
# What is so: libibumad cuts the name at 19 characters and then finds no such device. `ibstat -l` lists the whole name, but ibstat 44
#   ends with an error at this HCA and leaves out all HCAs after it (in the order of names). ibstat 56 leaves out only the one.
# Versions: infiniband-diags, libibumad3 44.0-2 (Debian 12); 56.1-1 (Debian 13) as said.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm infiniband-diags=44.0-2 libibumad3=44.0-2 libibmad5=44.0-2 libibnetdisc5=44.0-2

long=rocep65536s0f0v12np1
number=0
for name in mlx5_0 $long rxe0; do
  hca=$work/class/infiniband/$name
  mad=$work/class/infiniband_mad/umad$number
  mkdir -p "$hca/ports/1/pkeys" "$hca/ports/1/gids" "$mad"
  while read -r file value; do
    echo "$value" > "$hca/$file"
  done << 'ATTRIBUTES'
fw_ver 20.36.1010
hca_type MT4129
hw_rev 0
node_type 1: CA
node_guid 0002:c903:0000:0001
sys_image_guid 0002:c903:0000:0001
ports/1/state 4: ACTIVE
ports/1/phys_state 5: LinkUp
ports/1/rate 400 Gb/sec (4X NDR)
ports/1/link_layer InfiniBand
ports/1/lid 0x1
ports/1/lid_mask_count 0
ports/1/sm_lid 0x2
ports/1/sm_sl 0
ports/1/cap_mask 0x2651e84a
ports/1/pkeys/0 0xffff
ports/1/gids/0 fe80:0000:0000:0000:0002:c903:0000:0001
ATTRIBUTES
  echo 5 > "$work/class/infiniband_mad/abi_version"
  echo "$name" > "$mad/ibdev"
  echo 1 > "$mad/port"
  number=$((number + 1))
done
# ibstat reads /sys/class, whatever SYSFS_PATH is.
run_ibstat() {
  # shellcheck disable=SC2016 # variables of the inner shell
  LD_LIBRARY_PATH=$work/usr/lib/x86_64-linux-gnu unshare --mount sh -c \
    'mount -t tmpfs sysfs /sys/class && cp -R "$1"/class/. /sys/class/ && shift && exec "$@"' sh "$work" "$work/usr/sbin/ibstat" "$@" 2>&1
}
expect "ibstat -l" "$(run_ibstat -l | tr '\n' ' ')" "mlx5_0 $long rxe0 "
expect "ibstat, HCAs" "$(run_ibstat | sed -n "s/^CA '\(.*\)'/\1/p" | tr '\n' ' ')" "mlx5_0 "
expect "ibstat, error" "$(run_ibstat | grep -o "stat of IB device.*")" "stat of IB device '$long' failed: No such file or directory"
