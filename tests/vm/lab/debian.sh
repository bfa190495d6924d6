# Common functions of build-image and fetch-qemu: the mirror, the settings of apt, the cache.

cache=${RDMA_INIT_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rdma-init-vm}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
suite=trixie

say() { echo "tests/vm/$(basename "$0"): $*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# For a requirement that is missing on this machine: prints the reason to stdout, where the caller reads it.
not_possible() {
  echo "$*"
  exit 77
}

# Prints the archive from which this machine installs, so that the lab works with the mirror of the machine. Security and third-party
# archives have another label or origin.
mirror() {
  local uri
  if [ -n "${RDMA_INIT_VM_MIRROR:-}" ]; then
    echo "$RDMA_INIT_VM_MIRROR"
    return
  fi
  # shellcheck disable=SC2016 # apt's own variable
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
  [ -n "$uri" ] || die "apt has no Debian archive; remedy: run \`apt-get update\` or set RDMA_INIT_VM_MIRROR"
  echo "$uri"
}

# need_tools WHAT: checks the tools for building WHAT.
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
  [ -z "$missing" ] || not_possible "packages are missing to build $1; remedy: install$missing"
  # The build makes device nodes and sets owners.
  [ "$(id -u)" = 0 ] || not_possible "only root can build $1; remedy: run tests/vm/$(basename "$0") as root once"
}

# Prints the settings of this machine's apt that mmdebstrap needs to reach the mirror, one option per line.
apt_options() {
  local name value
  # The backports of a frozen mirror are after their Valid-Until date; the signature is still checked.
  echo '--aptopt=Acquire::Check-Valid-Until "false"'
  echo '--aptopt=APT::Install-Recommends "false"'
  for name in Acquire::Check-Date Acquire::http::Proxy Acquire::https::Proxy; do
    value=$(apt-config dump --no-empty --format '%v' "$name")
    [ -z "$value" ] || echo "--aptopt=$name \"$value\""
  done
}

# remove_tree DIR: mmdebstrap mounts /proc, /sys and the machine's /dev/shm into its tree, and leaves them mounted if it is killed. They are
# unmounted first, and nothing on another file system is ever removed.
remove_tree() {
  local tree=$1 at
  awk -v tree="$tree/" 'index($2, tree) == 1 { print $2 }' /proc/self/mounts | sort -r | while read -r at; do
    umount --lazy "$at" || die "\`$at\` is still mounted: not removing \`$tree\`"
  done || return 1
  rm -rf --one-file-system "$tree"
}

# key_of FILE...: prints a hash of their names and contents.
key_of() {
  printf '%s\n' "$@" | LC_ALL=C sort | while read -r file; do
    echo "$file"
    cat "$file"
  done | sha256sum | cut -c 1-16
}
