#!/bin/sh
# Question: Which ucx.conf decides if there is one in UCX_CONFIG_DIR, in the home directory and in the current directory?
# Memory said: the current directory is not read, and UCX_CONFIG_DIR, which the user names, comes first.
# What is so: UCX reads all of them, and the one in the current directory wins, then the one of UCX_CONFIG_DIR, then that of the home
#   directory. A job that starts in a directory with a forgotten ucx.conf uses other HCAs than the site's file names, without a message.
#   A variable of the environment wins over every file.
# Versions: libucx0 1.13.1-1 (Debian 12); the same with 1.18.1 (Debian 13).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
fetch "$work" bookworm libucx0=1.13.1-1 ucx-utils=1.13.1-1 libibverbs1=44.0-2 librdmacm1=44.0-2 libnl-3-200=3.7.0-0.2+b1 \
  libnl-route-3-200=3.7.0-0.2+b1 libnuma1=2.0.16-1

mkdir "$work/named" "$work/home" "$work/current" "$work/empty"
for place in named home current; do
  echo "UCX_NET_DEVICES=$place" > "$work/$place/ucx.conf"
done
# devices DIRECTORY [NAME=VALUE]: runs ucx_info in the directory.
devices() {
  directory=$1
  shift
  (cd "$work/$directory" && env HOME="$work/home" LD_LIBRARY_PATH="$work/usr/lib/x86_64-linux-gnu:$work/lib/x86_64-linux-gnu" "$@" \
    "$work/usr/bin/ucx_info" -c 2>&1) | sed -n 's/^UCX_NET_DEVICES=//p'
}
expect "home" "$(devices empty)" home
expect "home, UCX_CONFIG_DIR" "$(devices empty UCX_CONFIG_DIR="$work/named")" named
expect "home, UCX_CONFIG_DIR, current directory" "$(devices current UCX_CONFIG_DIR="$work/named")" current
expect "the same, and a variable" "$(devices current UCX_CONFIG_DIR="$work/named" UCX_NET_DEVICES=variable)" variable
