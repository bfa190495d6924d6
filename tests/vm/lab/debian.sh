# shellcheck shell=bash
# What build-image and fetch-qemu share: the mirror, the way to it, the cache.

cache=${RDMA_INIT_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-init-vm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
suite=trixie

say() { echo "tests/vm/$(basename "$0"): $*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# Something is missing on this machine: the reason goes to stdout, where the caller reads it.
not_possible() {
  echo "$*"
  exit 77
}

# The archive that this machine installs from, so that the lab works behind whatever mirror the machine was given.
# Security and third-party archives have another label or origin.
mirror() {
  local uri
  if [ -n "${RDMA_INIT_VM_MIRROR:-}" ]; then
    echo "$RDMA_INIT_VM_MIRROR"
    return
  fi
  # shellcheck disable=SC2016 # apt's own variable
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
  [ -n "$uri" ] || die "apt knows no Debian archive; run \`apt-get update\` or set RDMA_INIT_VM_MIRROR"
  echo "$uri"
}

# need_tools WHAT: what building WHAT takes.
need_tools() {
  local tool package missing=
  while read -r tool package; do
    command -v "$tool" > /dev/null || missing="$missing $package"
  done << 'PACKAGES'
mmdebstrap mmdebstrap
mkfs.ext4 e2fsprogs
flock util-linux
PACKAGES
  [ -r "$keyring" ] || missing="$missing debian-archive-keyring"
  [ -z "$missing" ] || not_possible "install$missing to build $1"
  # Device nodes and owners.
  [ "$(id -u)" = 0 ] || not_possible "only root can build $1; run tests/vm/$(basename "$0") as root once"
}

# Settings of this machine's apt that mmdebstrap's must share to reach the mirror at all, one option per line.
apt_options() {
  local name value
  # A frozen mirror's backports is past its Valid-Until date; the signature is still checked.
  echo '--aptopt=Acquire::Check-Valid-Until "false"'
  echo '--aptopt=APT::Install-Recommends "false"'
  for name in Acquire::Check-Date Acquire::http::Proxy Acquire::https::Proxy; do
    value=$(apt-config dump --no-empty --format '%v' "$name")
    [ -z "$value" ] || echo "--aptopt=$name \"$value\""
  done
}

# remove_tree DIR: mmdebstrap mounts /proc, /sys and the machine's own /dev/shm into the tree it builds, and leaves them there when
# it is killed. They are taken off first, and nothing on another file system is ever removed.
remove_tree() {
  local tree=$1 at
  awk -v tree="$tree/" 'index($2, tree) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r at; do
    umount --lazy "$at" || die "\`$at\` is still mounted, so \`$tree\` is left as it is"
  done || return 1
  rm -rf --one-file-system "$tree"
}

# key_of FILE...: of their names and contents.
key_of() {
  printf '%s\n' "$@" | LC_ALL=C sort | while read -r file; do
    echo "$file"
    cat "$file"
  done | sha256sum | cut -c 1-16
}
