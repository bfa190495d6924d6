#!/bin/sh
# Question: Do two HCAs that are in the same partitions have a P_Key at the same index?
# Memory said: yes, opensm fills the P_Key tables in the order of partitions.conf, and a partition that is added takes the lowest free
#   index.
# What is so: opensm leaves a P_Key at the index that it has, also after a restart, and puts a new one behind the last one. An HCA that
#   was once in another partition keeps a gap, so that the same P_Key has different indices on two HCAs, with the same partitions.conf.
#   NCCL_IB_PKEY and other settings that are an index then fit one of them.
# Versions: opensm 3.3.23-2+b1, ibsim 0.10-2 (Debian 12).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
# shellcheck source=findings/subnet
. "$(dirname "$0")/subnet"
start_subnet

partitions "a=0x1: 0x1001=full;" "b=0x2: ALL=full;"
expect "a and b, n1" "$(pkeys n1)" "0xffff 0x8001 0x8002 0x0000 0x0000"
expect "a and b, n2 (only in b)" "$(pkeys n2)" "0xffff 0x8002 0x0000 0x0000 0x0000"
partitions "b=0x2: ALL=full;" "c=0x3: ALL=full;"
expect "b and c, n1" "$(pkeys n1)" "0xffff 0x0000 0x8002 0x8003 0x0000"
expect "b and c, n2" "$(pkeys n2)" "0xffff 0x8002 0x8003 0x0000 0x0000"
