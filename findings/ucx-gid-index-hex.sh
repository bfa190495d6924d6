#!/bin/sh
# Question: Which GID index does UCX use for UCX_IB_GID_INDEX=0x3, and for a list such as 3,5?
# Memory said: UCX refuses a value that is not a number, and reads 0x3 as 3, as NCCL does with NCCL_IB_GID_INDEX.
# What is so: UCX reads the decimal digits at the beginning and ignores the rest, without a message. 0x3 is index 0, which is the
#   port's link-local RoCE v1 GID on most hosts; 3,5 is 3 for all ports; 010 is 10, where NCCL takes 8. -1, which means automatic
#   choice in NCCL, is `inf`, the highest number, and -2 is automatic choice. Only a value without a digit at its beginning is refused.
# Versions: libucx0 1.13.1-1 (Debian 12); the same with 1.18.1 (Debian 13).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
fetch "$work" bookworm libucx0=1.13.1-1 ucx-utils=1.13.1-1 libibverbs1=44.0-2 librdmacm1=44.0-2 libnl-3-200=3.7.0-0.2+b1 \
  libnl-route-3-200=3.7.0-0.2+b1 libnuma1=2.0.16-1

libraries=$work/usr/lib/x86_64-linux-gnu
read_as() {
  UCX_IB_GID_INDEX=$1 LD_LIBRARY_PATH=$libraries:$work/lib/x86_64-linux-gnu "$work/usr/bin/ucx_info" -caf 2>&1 |
    sed -n -e 's/^UCX_IB_GID_INDEX=//p' -e "s/.*\(Invalid value for GID_INDEX: '[^']*'\).*/\1/p" | head -n 1
}
expect "UCX_IB_GID_INDEX=3" "$(read_as 3)" 3
expect "UCX_IB_GID_INDEX=0x3" "$(read_as 0x3)" 0
expect "UCX_IB_GID_INDEX=3,5" "$(read_as 3,5)" 3
expect "UCX_IB_GID_INDEX=010" "$(read_as 010)" 10
expect "UCX_IB_GID_INDEX=-1" "$(read_as -1)" inf
expect "UCX_IB_GID_INDEX=-2" "$(read_as -2)" auto
expect "UCX_IB_GID_INDEX=x3" "$(read_as x3)" "Invalid value for GID_INDEX: 'x3'"
