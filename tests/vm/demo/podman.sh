# shellcheck shell=bash disable=SC2034,SC2154
# Podman for the tests of the images and of hooks.d. In namespaces of our own, where its mounts, its storage in /var and
# /run, and conmon, which outlives it, end with the test. Sourced after assert.sh, whose `work` it uses.

# enter_podman_namespaces COMMAND...: Podman and crun of Debian 12 refuse cgroups in hybrid mode, unless they do not see the
# unified hierarchy.
enter_podman_namespaces() {
  needs_root
  needs podman podman
  needs busybox busybox-static
  oci_runtimes >&2 || skip "no OCI runtime (Debian packages runc and crun)"
  ! ldd "$(command -v busybox)" > /dev/null 2>&1 || skip "busybox is not static (Debian package busybox-static)"
  mkdir -p /var/lib/containers
  WORK=$work unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@"
}

oci_runtimes() { command -v runc crun; }

hide_system_state() {
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /var/lib/containers
  ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
}

# After the namespaces, and with them conmon, have ended: its cgroups are empty then.
remove_podman_traces() {
  find /sys/fs/cgroup -depth -type d -path "*/${work##*/}*" -exec rmdir {} + 2> /dev/null || true
  rm -rf "$work"
}

storage=(--root "$work/storage" --runroot "$work/runroot" --storage-driver vfs)

in_podman() {
  podman "${storage[@]}" --tmpdir "$work/podman" --cgroup-manager cgroupfs --events-backend none "$@"
}

# Options of `podman run`. The limits are the ones that we have, because podman's own defaults are higher than what a
# process without CAP_SYS_RESOURCE may set.
run_options=(--rm --network none --cgroup-parent "/${work##*/}"
  --ulimit "nofile=$(ulimit -Hn)" --ulimit "nproc=$(ulimit -Hu)")

# make_podman_root DIR: busybox and links to it.
make_podman_root() {
  local program
  mkdir -p "$1/bin"
  cp "$(command -v busybox)" "$1/bin/busybox"
  for program in sh env true; do ln -s busybox "$1/bin/$program"; done
}
