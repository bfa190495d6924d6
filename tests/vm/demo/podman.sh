# shellcheck shell=bash disable=SC2034,SC2154
# Podman for the tests of the images and of hooks.d, in separate namespaces: its mounts, its storage in /var and /run, and conmon, which
# outlives it, end with the test. Sourced after assert.sh; uses `work` of that file.

# enter_podman_namespaces COMMAND...: podman and crun of Debian 12 refuse cgroups in hybrid mode, unless the unified hierarchy is not
# mounted.
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

# Called after the namespaces, and conmon, have ended: its cgroups are then empty.
remove_podman_traces() {
  find /sys/fs/cgroup -depth -type d -path "*/${work##*/}*" -exec rmdir {} + 2> /dev/null || true
  rm -rf "$work"
}

storage=(--root "$work/storage" --runroot "$work/runroot" --storage-driver vfs)

in_podman() {
  podman "${storage[@]}" --tmpdir "$work/podman" --cgroup-manager cgroupfs --events-backend none "$@"
}

# Options of `podman run`. The limits are the limits of this process: podman's own defaults are higher than a process without
# CAP_SYS_RESOURCE can set.
run_options=(--rm --network none --cgroup-parent "/${work##*/}"
  --ulimit "nofile=$(ulimit -Hn)" --ulimit "nproc=$(ulimit -Hu)")

# make_podman_root DIR: installs busybox and links to it.
make_podman_root() {
  local program
  mkdir -p "$1/bin"
  cp "$(command -v busybox)" "$1/bin/busybox"
  for program in sh env true; do ln -s busybox "$1/bin/$program"; done
}
