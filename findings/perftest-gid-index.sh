#!/bin/sh
# Question: Can ib_write_bw use the GID at index 100 of a table with 256 entries?
# Memory said: -x takes every index of a GID table.
# What is so: -x takes 0 to 64. 65 to 255 are refused, before a device is looked up. From 256 on the number is cut to 8 bits without a
#   message: 256 is index 0, and 321 is refused like 65. A container whose GID is above 64, as on a node with many addresses, cannot be
#   measured with perftest and -x.
# Versions: perftest 4.5+0.17-1 (Debian 12); the same with 25.01.0+0.80-1 (Debian 13).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
fetch "$work" bookworm perftest=4.5+0.17-1 libibverbs1=44.0-2 librdmacm1=44.0-2 libibumad3=44.0-2 libnl-3-200=3.7.0-0.2+b1 \
  libnl-route-3-200=3.7.0-0.2+b1 libpci3=1:3.9.0-4

# verdict INDEX: "refused", or "taken" if only the device is missing.
verdict() {
  LD_LIBRARY_PATH=$work/usr/lib/x86_64-linux-gnu:$work/lib/x86_64-linux-gnu "$work/usr/bin/ib_write_bw" -d no_such_hca -x "$1" 2>&1 |
    sed -n -e 's/.*Gid index should be between 0 and 64.*/refused/p' -e 's/.*Did not detect devices.*/taken/p' \
      -e 's/.*no_such_hca not found.*/taken/p'
}
expect "-x 64" "$(verdict 64)" taken
expect "-x 65" "$(verdict 65)" refused
expect "-x 255" "$(verdict 255)" refused
expect "-x 256" "$(verdict 256)" taken
expect "-x 321" "$(verdict 321)" refused
