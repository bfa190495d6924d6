# Real containers in the network namespaces of pods, with the guest's crun or the runtime of use_runtime.
# Their root is the guest's own disk, mounted read-only as a separate file system: rdma-hook refuses a container with the root
# directory of the node as its root, because no image is that directory.

readonly containers=/run/lab/containers

# Prints every node under /dev/infiniband as an OCI device.
rdma_devices() {
  stat --format '{"path": "%n", "type": "c", "major": %Hr, "minor": %Lr, "fileMode": 438, "uid": 0, "gid": 0}' /dev/infiniband/*
}

# write_bundle NAME POD ARG...: writes config.json and root of a container. ENVIRONMENT (an array of NAME=value) is added to its
# environment, and BUNDLE_EDIT is a filter of jq for config.json.
#
# Without CAP_IPC_LOCK, and with a small soft limit of locked memory under an unlimited hard limit. A program can then register
# memory only if its parent raised the limit, as rdma-init does.
write_bundle() {
  local name=$1 pod=$2 bundle=$containers/$1
  shift 2
  [ ! -e "$bundle" ] || fail "a container $name already exists"
  mkdir -p "$bundle/rootfs" /run/lab/empty
  mount -t overlay overlay -o lowerdir=/:/run/lab/empty "$bundle/rootfs"
  # One call: jq takes longer to start than to make the bundle.
  rdma_devices | jq --slurp --arg name "$name" --arg pod "$pod" --arg environment "$(printf '%s\n' "${ENVIRONMENT[@]:-}")" '
    . as $devices | ["CAP_CHOWN", "CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_NET_BIND_SERVICE"] as $capabilities | {
      ociVersion: "1.0.2",
      hostname: $name,
      root: {path: "rootfs", readonly: true},
      process: {
        cwd: "/", user: {uid: 0, gid: 0}, args: $ARGS.positional, noNewPrivileges: true,
        env: (["PATH=/run/lab/bin:/usr/sbin:/usr/bin", "HOME=/tmp", "TERM=linux"] + ($environment / "\n" | map(select(. != "")))),
        capabilities: {bounding: $capabilities, effective: $capabilities, permitted: $capabilities},
        rlimits: [{type: "RLIMIT_MEMLOCK", soft: 65536, hard: 18446744073709551615}]
      },
      mounts: [
        {destination: "/proc", type: "proc", source: "proc"},
        {destination: "/dev", type: "tmpfs", source: "tmpfs", options: ["nosuid", "mode=755"]},
        {destination: "/dev/pts", type: "devpts", source: "devpts", options: ["newinstance", "ptmxmode=0666"]},
        {destination: "/dev/shm", type: "tmpfs", source: "shm", options: ["nosuid", "nodev", "mode=1777"]},
        {destination: "/sys", type: "sysfs", source: "sysfs", options: ["ro", "nosuid", "nodev", "noexec"]},
        {destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["mode=1777"]},
        {destination: "/run", type: "tmpfs", source: "tmpfs"},
        {destination: "/run/lab/bin", type: "bind", source: "/run/lab/bin", options: ["bind", "ro"]}
      ],
      linux: {
        namespaces: [{type: "pid"}, {type: "ipc"}, {type: "uts"}, {type: "mount"}, {type: "network", path: "/run/netns/\($pod)"}],
        devices: $devices,
        resources: {devices: ([{allow: false, access: "rwm"}] + ($devices | map({allow: true, type, major, minor, access: "rwm"})))},
        cgroupsPath: "/lab/\($name)"
      }
    } | '"${BUNDLE_EDIT:-.}" --args -- "$@" > "$bundle/config.json"
}

# edit_bundle NAME FILTER: changes its config.json by a filter of jq.
edit_bundle() {
  local config=$containers/$1/config.json
  jq "$2" "$config" > "$config.new"
  mv "$config.new" "$config"
}

# start_container NAME POD ARG...: runs a container in the background. Its output goes to `output_of NAME`.
start_container() {
  write_bundle "$@"
  start_bundle "$1"
}

# start_bundle NAME: the same with an unchanged bundle.
start_bundle() { record_end "$1" runtime run --bundle "$containers/$1" "$1" & }

# record_end NAME COMMAND...: runs COMMAND, and records its output and its exit code as those of container NAME.
record_end() {
  local bundle=$containers/$1 code=0
  "${@:2}" < /dev/null > "$bundle/output" 2>&1 || code=$?
  echo "$code" > "$bundle/exit-code"
}

output_of() { echo "$containers/$1/output"; }

# A wait also ends with the container: the next assertion then shows why it ended.
container_runs() { container_ended "$1" || runtime state "$1" 2> /dev/null | grep -q '"status": "running"'; }

container_ended() { [ -s "$containers/$1/exit-code" ]; }

# wait_for_container NAME SECONDS: prints its output and sets exit_code.
wait_for_container() {
  wait_for_end "$@"
  sed -e "s/^/[$1] /" "$(output_of "$1")"
}

# wait_for_success NAME SECONDS: prints its output. Its exit code must be 0.
wait_for_success() {
  wait_for_container "$@"
  assert_equal "exit code of $1" 0 "$exit_code"
}

# wait_for_end NAME SECONDS: sets exit_code without printing. If the case fails, the log has the output anyway.
wait_for_end() {
  wait_until "container $1 ends" "$2" container_ended "$1"
  exit_code=$(cat "$containers/$1/exit-code")
}

# wait_for_listener NAME POD PORT: waits until the program in container NAME accepts connections in POD.
wait_for_listener() {
  wait_until "container $1 listens on port $3" 90 listens_or_ended "$@"
  ! container_ended "$1" || fail "container $1 ended before it listened on port $3"
}
listens_or_ended() { container_ended "$1" || listens "$2" "$3"; }

# run_container NAME POD ARG...: starts it and waits for its end. After run_to_success its exit code is 0, after run_to_failure it is not.
# run_to_failure takes runc if the case has chosen no runtime: it shows the error of a hook, of which crun shows only the exit code.
run_container() {
  start_container "$@"
  wait_for_container "$1" 120
}
run_to_success() {
  start_container "$@"
  wait_for_success "$1" 120
}
run_to_failure() {
  local runtime_name=$runtime_name runtime_command=("${runtime_command[@]}")
  [ "$runtime_name" != crun ] || { runtime_name=runc runtime_command=(runc); }
  run_container "$@"
  [ "$exit_code" != 0 ] || fail "container $1 ended with 0"
}

# start_running NAME POD ARG...: starts it and waits until it runs.
start_running() {
  start_container "$@"
  wait_until "$1 runs" 90 container_runs "$1"
  ! container_ended "$1" || { cat "$(output_of "$1")" && fail "container $1 ended"; }
}

stop_container() {
  runtime kill "$1" KILL 2> /dev/null || true
  wait_for_container "$1" 60
}

remove_container() {
  umount "$containers/$1/rootfs"
  rm -rf "${containers:?}/$1"
}

# needs PROGRAM...: the build must have these programs. It has no verbs_trainer if libibverbs-dev was missing at its configuration.
needs() {
  local program
  for program in "$@"; do
    [ ! -x "/run/lab/bin/$program" ] || continue
    [ "$program" != verbs_trainer ] || not_possible_here "the build has no verbs_trainer: libibverbs-dev was not installed at its configuration"
    fail "the build directory has no $program"
  done
}
