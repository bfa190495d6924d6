# Containers that get their HCAs from rdma-hook: its configuration, its entry in a bundle or in hooks.d, its grants, and the release of
# its grants.

readonly hook=/run/lab/bin/rdma-hook
readonly ledger=/run/rdma-hook

# hook_config JSON: writes the node's configuration.
hook_config() {
  mkdir -p /etc/rdma-init
  echo "$1" > /etc/rdma-init/config.json
  "$hook" check-config
}

# Edit of a bundle for the hook: no devices and no rules of its own (except mknod of all devices, as runtimes allow, to test the
# numbers of other HCAs), no limit of locked memory, and the request in the array ANNOTATIONS (NAME=value).
bundle_without_devices() {
  jq --null-input --raw-output --argjson annotations "$(
    printf '%s\n' "${ANNOTATIONS[@]:-}" | jq --raw-input . | jq --slurp 'map(select(. != "") | capture("(?<key>[^=]*)=(?<value>.*)")) | from_entries'
  )" '"del(.linux.devices) | .linux.resources.devices = [{allow: false, access: \"rwm\"}] | del(.process.rlimits)
    | .annotations = \($annotations)
    | .process.capabilities |= map_values(. + [\"CAP_MKNOD\"])"'
}

# For BUNDLE_EDIT: a network namespace of the container itself, which then owns the grant. In the namespace of a pod the pod owns the
# grant, which outlives the container.
readonly own_network='.linux.namespaces |= map(if .type == "network" then del(.path) else . end)'

# through_hook [PROGRAM]: adds rdma-hook at createRuntime and poststop to all further bundles, and nothing else of RDMA.
through_hook() {
  BUNDLE_EDIT="$(bundle_without_devices) | $(hook_entries "${1:-$hook}")"
}
# through_own_hook [PROGRAM]: the same for containers with their own network namespace.
through_own_hook() {
  through_hook "$@"
  BUNDLE_EDIT+=" | $own_network"
}
hook_entries() {
  echo ".hooks = {
    createRuntime: [{path: \"$1\", args: [\"$1\", \"createRuntime\", \"--engine\", \"runc\"]}],
    poststop: [{path: \"$1\", args: [\"$1\", \"poststop\", \"--engine\", \"runc\"]}]}"
}

# keep_syslog: writes all further syslog messages of the hook to the file $syslog. The standard error output of a hook that succeeds, or
# that podman or crun calls, is not shown. (With systemd there is the journal.)
readonly syslog=/run/lab/syslog
keep_syslog() {
  rm -f /dev/log "$syslog"
  setpriv --pdeathsig KILL python3 -c '
import socket, sys
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(log.recv(65536) + b"\n")' "$syslog" &
  wait_until "/dev/log exists" 60 test -S /dev/log
}
# assert_said WHAT EXTENDED_REGEX
assert_said() {
  wait_until "$1 is in the log" 30 grep -Eq -- "$2" "$syslog"
  assert_contains "$1" "$syslog" "$2"
}

# node_of HCA: prints its uverbs node on the guest. numbers_of NODE: prints "MAJOR:MINOR".
node_of() {
  local verbs
  for verbs in /sys/class/infiniband_verbs/uverbs*; do
    [ "$(cat "$verbs/ibdev")" != "$1" ] || echo "/dev/infiniband/$(basename "$verbs")"
  done
}
numbers_of() { stat --format '%Hr:%Lr' "$1"; }

# The last component of the cgroup path of write_bundle; the systemd driver makes its own scopes.
cgroup_of() { echo "/sys/fs/cgroup/lab/$1"; }

device_programs_of() { bpftool --json cgroup show "$(cgroup_of "$1")" | jq '[.[] | select(.attach_type | test("device"))] | length'; }

# assert_opens OUTPUT NODE NUMBERS [MODE [OWNER]]: checks the output of container-probe.
assert_opens() { assert_contains "$2 is there and opens" "$1" "^open $2 $3 ${4:-666} ${5:-0:0} ok\$"; }
assert_error() { assert_contains "$2 gives $3" "$1" "^open $2 .* $3\$"; }
assert_foreign_denied() { assert_contains "$2, of an HCA that was not granted" "$1" "^foreign $2 EPERM\$"; }

# assert_sees_only OUTPUT HCA: checks the view below /sys/class, and its uverbs directory.
assert_sees_only() {
  assert_contains "sysfs shows $2 alone" "$1" "^sysfs infiniband $2\$"
  assert_contains "sysfs shows its uverbs alone" "$1" "^sysfs infiniband_verbs (abi_version )?$(basename "$(node_of "$2")")\$"
}

# assert_nothing_left NAME: no owner, grant, unfinished step, mount or cgroup, and no view after `recover`. Locks and counters stay.
assert_nothing_left() {
  local found
  assert_equal "left in the ledger after $1" "" "$(bookings)"
  "$hook" recover > /dev/null
  found=$(find "$ledger/views" -mindepth 1 ! -name none 2> /dev/null || true)
  assert_equal "views left after $1" "" "$found"
  assert_equal "mounts left after $1" "" "$(grep -E "rdma-hook|containers/$1/" /proc/self/mountinfo | grep -v "containers/$1/rootfs " || true)"
  [ ! -d "$(cgroup_of "$1")" ] || fail "the cgroup of $1 is still there: $(ls "$(cgroup_of "$1")")"
  echo "ok: nothing left of $1"
}

# show_holders: prints the owners of HCAs to the log of a case.
show_holders() { "$hook" devices --json | sed -e 's/^/[devices] /'; }

# make_root NAME: makes a writable root file system over the guest's own disk, or over the directories of image_layers (DIR:DIR), which do
# not change, with the programs of the build in /usr/local/bin, and prints its path. Also for podman, which writes into its root.
make_root() {
  local at=/run/lab/roots/$1
  mkdir -p "$at/upper/usr/local/bin" "$at/work" "$at/merged"
  mount -t overlay overlay -o "lowerdir=${image_layers:-/},upperdir=$at/upper,workdir=$at/work" "$at/merged"
  cp /run/lab/bin/* "$at/merged/usr/local/bin/"
  echo "$at/merged"
}

# Runs podman with separate storage, on a file system that can be above the disk, with the runtime PODMAN_RUNTIME and the cgroup
# manager PODMAN_CGROUPS.
in_podman() {
  command podman ${PODMAN_RUNTIME:+--runtime "$PODMAN_RUNTIME"} --root /run/lab/podman/root --runroot /run/lab/podman/run --storage-driver vfs --cgroup-manager "${PODMAN_CGROUPS:-cgroupfs}" --events-backend none "$@"
}

# start_podman NAME POD ARG...: starts a container with the root of make_root, in POD, in the background, like `start_container`:
# wait_for_container, output_of and wait_for_listener support it. PODMAN_OPTIONS (an array) are options of `podman run`. Without a POD
# (`-`) it has its own network namespace.
start_podman() {
  local name=$1 network=ns:/run/netns/$2 root
  [ "$2" != - ] || network=none
  shift 2
  mkdir -p "$containers/$name"
  root=$(make_root "$name")
  record_end "$name" in_podman run --rm --name "$name" --network "$network" "${PODMAN_OPTIONS[@]}" --rootfs "$root" "$@" &
}
run_podman() {
  start_podman "$@"
  wait_for_container "$1" 240
}
