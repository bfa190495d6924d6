#!/bin/sh
# Question: Which P_Key has a partition for which partitions.conf gives only a name, such as `job: ALL=full;`?
# Memory said: one that belongs to the name, so that it stays.
# What is so: the lowest free number in the order of the lines. If two such lines change places, the partitions exchange their P_Keys,
#   and a child netdev of IPoIB (ib0.8001) is then in the other partition.
# Versions: opensm 3.3.23-2+b1, ibsim 0.10-2 (Debian 12).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
# shellcheck source=findings/subnet
. "$(dirname "$0")/subnet"
start_subnet

partitions "train: ALL=full;" "storage: 0x1001=full;"
expect "train, then storage: n1" "$(pkeys n1)" "0xffff 0x8001 0x8002 0x0000 0x0000"
expect "train, then storage: n2 (only in train)" "$(pkeys n2)" "0xffff 0x8001 0x0000 0x0000 0x0000"
partitions "storage: 0x1001=full;" "train: ALL=full;"
expect "storage, then train: n1" "$(pkeys n1)" "0xffff 0x8001 0x8002 0x0000 0x0000"
expect "storage, then train: n2 (only in train)" "$(pkeys n2)" "0xffff 0x8002 0x0000 0x0000 0x0000"
