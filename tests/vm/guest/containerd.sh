# containerd, called by guest/cri like by a kubelet: pods with containers of a local image.

readonly containerd_home=/run/lab/containerd
readonly cri_socket=/run/containerd/containerd.sock
readonly nri_socket=/run/nri/nri.sock
readonly samples=/run/lab/out/in/config/containerd
export CRI_SOCKET=$cri_socket

# One process makes the calls; start_containerd starts it.
cri() { CRI_SERVER=/run/lab/cri.socket python3 -IS /run/lab/vm/guest/cri "$@"; }
start_cri() {
  [ ! -S /run/lab/cri.socket ] || return 0
  setpriv --pdeathsig KILL python3 /run/lab/vm/guest/cri serve /run/lab/cri.socket &
  cri_pid=$!
  wait_until "the CRI client listens" 60 test -S /run/lab/cri.socket
}

# containerd_versions: oldest first. CONTAINERD (of `run --set`) selects one version.
containerd_versions() { awk '$1 == "containerd" { print $2 }' /opt/runtimes/versions | grep -x "${CONTAINERD:-.*}" | sort -V; }
# newest_containerd: for cases that test the runtime rather than containerd. CONTAINERD selects an older version.
newest_containerd() { containerd_versions | tail -n 1; }

# sample_of VERSION KIND: path of the project's sample of this kind, in the syntax of this version.
sample_of() {
  case $1 in
    1.*) echo "$samples/$2-1.7.toml" ;;
    *) echo "$samples/$2-2.toml" ;;
  esac
}

# start_containerd VERSION [KIND...]: starts containerd with the project's samples of these kinds and the additions of the lab: a bridge
# for eth0, local images, handler `plain`. Its log is $containerd_home/log. After stop_containerd it starts the same configuration again.
start_containerd() {
  prepare_containerd "$@"
  run_containerd "$1"
}
# install_containerd VERSION WAY [HANDLER]: the same, set up by `rdma-hook install`. HANDLER: the program of the node's own handler.
install_containerd() {
  prepare_containerd "$1" "own=${3:-}" "${2/nri/plugins}"
  PATH=/opt/runtimes/containerd-$1:$PATH install_engine containerd "$2"
  run_containerd "$1"
}
prepare_containerd() {
  local version=$1
  shift
  [ -x "/opt/runtimes/containerd-$version/containerd" ] || fail "the image has no containerd $version"
  mkdir -p "$containerd_home" /run/lab/cni /usr/local/bin /etc/containerd /etc/systemd/system/containerd.service.d
  # The unit of the image starts the containerd of the image, and install runs the program of the unit.
  printf '[Service]\nExecStart=\nExecStart=%s\n' "/opt/runtimes/containerd-$version/containerd" > /etc/systemd/system/containerd.service.d/lab.conf
  # The path that the samples have.
  cp /run/lab/bin/rdma-{hook,runtime} /usr/local/bin/
  cat > /run/lab/cni/10-lab.conflist << 'END'
{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}}]}
END
  containerd_config "$version" "$@" > /etc/containerd/config.toml
}
run_containerd() {
  local version=$1 home=/opt/runtimes/containerd-$1
  PATH=$home:$PATH setpriv --pdeathsig KILL "$home/containerd" --address "$cri_socket" --root "$containerd_home/root" \
    --state /run/containerd >> "$containerd_home/log" 2>&1 &
  containerd_pid=$!
  start_cri
  (wait_until "containerd $version answers" 120 cri_answers) || show_containerd_errors
  [ ! -e "$containerd_home/images" ] || return 0
  containerd_image pause '["/bin/busybox", "sleep", "1000000"]' "$home"
  containerd_image workload '["/run/lab/bin/rdma-init", "--"]' "$home"
}
cri_answers() {
  [ -d "/proc/$containerd_pid" ] || fail "containerd ended: $(tail -n 3 "$containerd_home/log")"
  cri version > /dev/null 2>&1
}
show_containerd_errors() {
  grep -E 'level=(error|fatal)' "$containerd_home/log" | tail -n 10 | sed -e 's/^/[containerd] /'
  exit 1
}
stop_containerd() {
  kill -TERM "$containerd_pid"
  wait "$containerd_pid" || true
}

# remove_containerd: removes all files, so that the next version can start.
remove_containerd() {
  local mounted
  stop_containerd
  [ ! -e /var/lib/rdma-init/install.json ] || /usr/local/bin/rdma-hook install --uninstall
  kill "$cri_pid"
  grep -o ' /run/containerd/[^ ]*' /proc/self/mountinfo | sort -ru | while read -r mounted; do umount "$mounted"; done
  rm -rf "$containerd_home" /run/containerd /run/lab/cri /run/lab/cri.socket /var/log/pods /etc/containerd
}

# Writes one configuration. Changed from the samples: the cgroup driver, because no systemd runs here, and the timeout of plugins.
containerd_config() {
  local cri images kind paths='bin_dirs = ["/usr/lib/cni"]' pause version=$1
  shift
  case $version in
    1.*)
      echo 'version = 2'
      cri='plugins."io.containerd.grpc.v1.cri"'
      paths='bin_dir = "/usr/lib/cni"'
      pause="[$cri]
  sandbox_image"
      ;;
    *)
      echo 'version = 3'
      cri='plugins."io.containerd.cri.v1.runtime"' images='plugins."io.containerd.cri.v1.images"'
      pause="[$images.pinned_images]
  sandbox"
      ;;
  esac
  for kind in "$@"; do
    case $kind in
      own=) [[ $version = 1.* && $* = *plugins* ]] || handler runc "" ;;
      own=*) handler nvidia "${kind#own=}" ;;
      plugins) printf '[plugins."io.containerd.nri.v1.nri"]\n  disable = false\n  plugin_request_timeout = "6s"\n' ;;
    esac
    [ -r "$(sample_of "$version" "$kind")" ] || continue
    sed -e '/^version = /d' -e 's/SystemdCgroup = true/SystemdCgroup = false/' -e 's/plugin_request_timeout = "2s"/plugin_request_timeout = "6s"/' \
      "$(sample_of "$version" "$kind")"
  done
  cat << END
$pause = "lab.local/pause:1"
[$cri.cni]
  $paths
  conf_dir = "/run/lab/cni"
[$cri.containerd.runtimes.plain]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["rdma-init.io/*"]
END
  # A node's configuration has the usual handler. If there is another handler and not this one, CRI does not start.
  if [[ " $* " != *" nri "* && "$*" != *own=* ]]; then handler runc ""; fi
}
# handler NAME PROGRAM: the default handler of the node.
handler() {
  echo "[$cri.containerd]
  default_runtime_name = \"$1\"
[$cri.containerd.runtimes.$1]
  runtime_type = \"io.containerd.runc.v2\""
  [ -z "$2" ] || echo "[$cri.containerd.runtimes.$1.options]
  BinaryName = \"$2\""
}

# nvidia_stand_in FILE: writes a runtime that, like NVIDIA's, adds to a container and executes runc.
nvidia_stand_in() {
  cat > "$1" << 'END'
#!/bin/sh
bundle=. last=
for word; do
  [ "$last" != --bundle ] || bundle=$word
  last=$word
done
case " $* " in
  *" create "*)
    jq '.process.env += ["NVIDIA_STAND_IN=yes"]' "$bundle/config.json" > "$bundle/new.json" && cat "$bundle/new.json" > "$bundle/config.json"
    ;;
esac
exec runc "$@"
END
  chmod 755 "$1"
}

# base_spec VERSION FILE [OPTION]: makes FILE with ctr of this version, with the command of config/containerd/README.md.
base_spec() {
  mkdir -p "$(dirname "$2")"
  "/opt/runtimes/containerd-$1/ctr" oci spec |
    /run/lab/bin/rdma-hook base-spec --hook /usr/local/bin/rdma-hook "${@:3}" > "$2"
}

# containerd_image NAME ENTRYPOINT HOME: makes lab.local/NAME:1, an image with no program except busybox: containers mount the guest's
# /usr. The image is made here, because there is no registry.
containerd_image() {
  local work=$containerd_home/images/$1 layer
  mkdir -p "$work/root"/{usr,etc/libibverbs.d,tmp,run/lab/bin,var,proc,sys,dev} "$work/root/bin"
  chmod 1777 "$work/root/tmp"
  if [ "$1" = pause ]; then
    cp "$(command -v busybox)" "$work/root/bin/busybox"
  else
    rmdir "$work/root/bin"
    for link in bin lib lib64 sbin; do ln -s "usr/$link" "$work/root/$link"; done
  fi
  tar --create --file "$work/layer.tar" --directory "$work/root" .
  layer=$(sha256sum < "$work/layer.tar" | cut -d ' ' -f 1)
  jq --null-input --arg layer "sha256:$layer" --argjson entrypoint "$2" '{architecture: "amd64", os: "linux",
    config: {Entrypoint: $entrypoint, Env: ["PATH=/run/lab/bin:/usr/sbin:/usr/bin", "HOME=/tmp"]},
    rootfs: {type: "layers", diff_ids: [$layer]}}' > "$work/config.json"
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"lab.local/$1:1\"], \"Layers\": [\"layer.tar\"]}]" > "$work/manifest.json"
  tar --create --file "$work/image.tar" --directory "$work" manifest.json config.json layer.tar
  "$3/ctr" --address "$cri_socket" --namespace k8s.io images import "$work/image.tar" > /dev/null
}

# pod_json NAME [ANNOTATION=VALUE...]: a pod in the namespace team-a. POD_EDIT is a filter of jq for it.
pod_json() {
  local name=$1
  shift
  jq --null-input --compact-output --arg name "$name" '{$name, namespace: "team-a",
    annotations: ($ARGS.positional | map(capture("(?<key>[^=]*)=(?<value>.*)")) | from_entries)}'" | ${POD_EDIT:-.}" --args -- "$@"
}

# container_json NAME COMMAND...: COMMAND follows rdma-init, the entrypoint of the image. CONTAINER_EDIT is a filter of jq for it. image_usr
# is mounted at /usr; default: the guest's /usr.
container_json() {
  local name=$1
  shift
  jq --null-input --compact-output --arg name "$name" --arg usr "${image_usr:-/usr}" '{$name,
    command: (["/run/lab/bin/rdma-init", "--"] + $ARGS.positional),
    mounts: ["/usr=\($usr)", "/run/lab/bin", "/etc/libibverbs.d"]}'" | ${CONTAINER_EDIT:-.}" --args -- "$@"
}

# The environment of a trainer before it trains: PID 1 prints it after rdma-init. The output ends with `ready`.
# shellcheck disable=SC2016 # the container's shell
readonly look_around='env | grep -e ^NCCL -e ^RDMA; container-probe --foreign 1:11 $(ls -d /dev/infiniband/* 2> /dev/null); echo ready; exec sleep infinity'

# patiently COMMAND...: retries, like a kubelet. rdma-nri uses half of the runtime's two seconds for the rails of a pod, which can
# be too short in an emulated CPU.
patiently() {
  local try
  for try in 1 2 3 4 5; do
    cri "$@" 2> /run/lab/refusal && return 0
    sed -e "s/^/try $try: /" /run/lab/refusal >&2
    grep -q 'did not finish within the runtime.s request timeout' /run/lab/refusal || return 3
  done
  return 3
}

# start_pod POD [HANDLER [ANNOTATION=VALUE...]]: sets pod to its ID, and netns to its network namespace (as `ip -n` expects it).
start_pod() {
  pod_name=$1
  pod=$(patiently run-pod "$(pod_json "$1" "${@:3}")" "${2:-}")
  netns=$(cri netns "$pod")
}

# start_worker NAME COMMAND...: starts a container in $pod and sets worker to its ID.
start_worker() {
  rm -f "/var/log/pods/$pod_name/$1.log" # log of an earlier container of this name
  worker=$(patiently create "$pod" "$(container_json "$@")")
  cri start "$worker"
}

# start_looking NAME: starts a container with the command $look_around, and waits until it has printed its environment.
start_looking() {
  start_worker "$1" sh -c "$look_around"
  wait_for_worker "$1" 60 ready
}

# log_of NAME: prints the path of a file with the output of container NAME of $pod_name.
log_of() {
  local log=/var/log/pods/$pod_name/$1
  sed -E 's/^[^ ]+ (stdout|stderr) [FP] //' "$log.log" > "$log.text"
  echo "$log.text"
}
worker_said() { [ -r "/var/log/pods/$pod_name/$1.log" ] && grep -Eq -- "$2" "$(log_of "$1")"; }

# wait_for_worker NAME SECONDS REGEX: waits for a matching line or the end of the container; the next assertion then shows the reason.
wait_for_worker() {
  wait_until "container $1 prints $3" "$2" worker_said_or_ended "$1" "$3"
}
worker_said_or_ended() { worker_said "$1" "$2" || [[ $(cri status "$worker") = exited* ]]; }

# wait_for_exit ID SECONDS: sets exit_code.
wait_for_exit() {
  wait_until "container ${1:0:12} ends" "$2" has_exited "$1"
  exit_code=$(cri status "$1")
  exit_code=${exit_code#exited }
}
has_exited() { [[ $(cri status "$1") = exited* ]]; }
# wait_for_good_exit ID SECONDS: its exit code must be 0.
wait_for_good_exit() {
  wait_for_exit "$@"
  assert_equal "exit code" 0 "$exit_code"
}

# end_worker ID...; end_cri_pod ID...: end them like a kubelet. end_job: ends $worker and $pod.
end_job() {
  end_worker "$worker"
  end_cri_pod "$pod"
}
end_worker() {
  local id
  for id in "$@"; do
    cri stop "$id"
    cri remove "$id"
  done
}
end_cri_pod() {
  local id
  for id in "$@"; do
    cri stop-pod "$id"
    cri remove-pod "$id"
  done
}

# assert_refused WHAT EXTENDED_REGEX COMMAND...: the caller of CRI gets an error that matches.
assert_refused() {
  local what=$1 regex=$2 code=0
  shift 2
  cri "$@" > /run/lab/refused 2>&1 || code=$?
  [ "$code" = 3 ] || { cat /run/lab/refused; fail "$what: cri $1 ended with $code, wanted a refusal"; }
  assert_contains "$what" /run/lab/refused "$regex"
}

# assert_all_returned: reads the ledger at once; assert_node_as_before checks the node itself.
assert_all_returned() {
  assert_equal "left in the ledger" "" "$(bookings)"
}

assert_nothing_runs() { assert_equal "pods and containers that containerd knows" "" "$(cri list)"; }

# start_nri [OPTION...]: starts rdma-nri as a service and sets nri_pid. Its log is $containerd_home/nri.log. nri_limits: options of
# setpriv.
nri_limits=()
start_nri() {
  local before
  before=$(registrations)
  launch_nri "$@"
  wait_until "rdma-nri is registered" 60 registered_since "$before"
}
# The same without the wait for the runtime.
launch_nri() {
  setpriv --pdeathsig KILL "${nri_limits[@]}" /run/lab/bin/rdma-nri "$@" >> "$containerd_home/nri.log" 2>&1 &
  nri_pid=$!
}
registrations() { grep -c "registered as" "$containerd_home/nri.log" 2> /dev/null || true; }
registered_since() {
  [ -d "/proc/$nri_pid" ] || fail "rdma-nri ended: $(tail -n 3 "$containerd_home/nri.log")"
  [ "$(registrations)" -gt "${1:-0}" ]
}
# Sets nri_limits to the capabilities of the DaemonSet.
limit_nri_like_daemonset() {
  local capabilities
  capabilities=$(sed -n 's/^ *add: \[\(SYS_ADMIN.*\)\]$/\L\1/p' "${samples%/*}/kubernetes/base/daemonset.yaml")
  [ -n "$capabilities" ] || fail "the manifest has no capabilities of rdma-nri"
  nri_limits=(--no-new-privs --bounding-set "-all,+${capabilities//, /,+}")
}
end_nri() {
  kill -"${1:-TERM}" "$nri_pid"
  wait "$nri_pid" || true
}

# cri_asks_for HCA [KEY=VALUE...]: sets pod_asks, an array of the pod's annotations that request the HCA, with more rdma-init.io/KEY, and
# container_asks, a filter of jq for its container. With `cri_asks=cdi` the container requests CDI devices. With a path of a device
# plugin's socket it has the devices that the plugin allocates, like from a kubelet.
cri_asks_for() {
  local annotation
  pod_asks=() container_asks=.
  case ${cri_asks:-annotations} in
    cdi) container_asks=".cdi = [\"rdma-init.io/hca=$1\"]" ;;
    /*)
      container_asks=".devices = $(cri allocate "$cri_asks" "$1" | jq --raw-input . | jq --slurp --compact-output .)"
      return
      ;;
    *) pod_asks+=("rdma-init.io/devices=$1") ;;
  esac
  shift
  for annotation in "$@"; do pod_asks+=("rdma-init.io/$annotation"); done
}

# two_pods_move_data HANDLER: as a user other than root, with rdma-init as the entrypoint, over exclusive HCAs: soft RoCE carries data
# only for the HCA's own netdev. rxe0 and rxe2 are on one switch.
two_pods_move_data() {
  local size=65536 messages=50 server client address received traffic
  traffic=(perftest-by-nccl-env ib_write_bw -s "$size" -n "$messages" -F)
  cri_asks_for rxe0 mode=exclusive
  start_pod server "$1" "${pod_asks[@]}"
  server=$pod
  address=$(cri ip "$server")
  CONTAINER_EDIT="$container_asks | .user = 1000" start_worker server "${traffic[@]}"
  local server_worker=$worker server_netns=$netns
  assert_equal "netdevs of the server" net1 "$(rail_netdevs_of "$netns")"
  [ ! -e /sys/class/net/v0 ] || fail "v0 is still on the node"
  needs_traffic_between_pods "$netns"
  wait_until "the server listens" 120 listens_or_exited "$server_netns" 18515
  received=$(counter rxe0 rcvd_pkts)
  cri_asks_for rxe2 mode=exclusive
  start_pod client "$1" "${pod_asks[@]}"
  client=$pod
  CONTAINER_EDIT="$container_asks | .user = 1000" start_worker client "${traffic[@]}" "$address"
  wait_for_exit "$worker" 180
  sed -e 's/^/[client] /' "$(log_of client)"
  assert_equal "exit code of the client" 0 "$exit_code"
  assert_contains "what rdma-init found" "$(log_of client)" \
    "^by NCCL_IB_HCA==rxe2:1 NCCL_IB_GID_INDEX=$(gid_index_of rxe2 "$(address_of "$netns" net1)")\$"
  assert_contains "data moved" "$(log_of client)" "^ *$size +$messages "
  wait_for_good_exit "$server_worker" 60
  # A packet has at most 4096 bytes.
  assert_greater "packets that rxe0 took in" "$(($(counter rxe0 rcvd_pkts) - received))" $((messages * size / 4096 - 1))
  end_worker "$worker" "$server_worker"
  end_cri_pod "$server" "$client"
  assert_nothing_runs
}
listens_or_exited() { listens "$1" "$2" || has_exited "$worker"; }

# has_capability OUTPUT BIT: tests the effective set that container-probe printed.
has_capability() {
  local set
  set=$(sed -n 's/^capabilities //p' "$1")
  (((16#$set >> $2) & 1))
}

# With every way a pod `train` that requests rxe0 and rxe1 in mode shared gets the following, and its container `helper` nothing.
readonly two_rails=("rdma-init.io/devices=rxe0,rxe1" rdma-init.io/mode=shared rdma-init.io/devices.helper=none)

# assert_two_rails NAME: checks the devices of container NAME of it, the exports of rdma-init, and the rails of the pod. Sets index.
assert_two_rails() {
  local said indices
  said=$(log_of "$1")
  assert_opens "$said" "$(node_of rxe0)" "$(numbers_of "$(node_of rxe0)")"
  assert_opens "$said" "$(node_of rxe1)" "$(numbers_of "$(node_of rxe1)")"
  assert_opens "$said" /dev/infiniband/rdma_cm "$(numbers_of /dev/infiniband/rdma_cm)"
  assert_contains "sysfs shows its HCAs alone" "$said" '^sysfs infiniband rxe0 rxe1$'
  assert_contains "locked memory" "$said" '^memlock unlimited unlimited$'
  assert_equal "its netdevs" "net1 net2" "$(rail_netdevs_of "$netns" | paste -sd ' ')"
  assert_equal "parents" "v0 v1" "$(parent_of "$netns" net1) $(parent_of "$netns" net2)"
  assert_policy_routing "$netns" net1 100 "$(gateway_of 0)"
  assert_policy_routing "$netns" net2 101 "$(gateway_of 1)"
  indices=$(gid_indices "$netns" 0 2)
  assert_equal "different indices of its two addresses" 1 "$(echo "$indices" | different)"
  index=${indices%% *}
  assert_contains "what rdma-init exported" "$said" '^NCCL_IB_HCA==rxe0:1,rxe1:1$'
  assert_contains "the index" "$said" "^NCCL_IB_GID_INDEX=$index\$"
}

# assert_session ID: checks a session of `exec` in such a container; its output stays in /run/lab/session.
assert_session() {
  cri exec "$1" container-probe "$(node_of rxe0)" > /run/lab/session
  assert_opens /run/lab/session "$(node_of rxe0)" "$(numbers_of "$(node_of rxe0)")"
  assert_contains "locked memory of a session" /run/lab/session '^memlock unlimited unlimited$'
}

# assert_pod_is_shared TRAINER_ID: a second container has the same rails and its own nodes, `helper` has none. After the end of these and
# of the first, the pod still has its rails, and a user other than root can register 1 GiB there.
assert_pod_is_shared() {
  local before logger
  before=$(rails_of_pod)
  start_worker logger sh -c "$look_around"
  logger=$worker
  wait_for_worker logger 60 ready
  assert_two_rails logger
  start_looking helper
  assert_equal "nodes of the container that is excluded" "" "$(grep '^open' "$(log_of helper)" || true)"
  end_worker "$worker" "$logger" "$1"
  CONTAINER_EDIT='.user = 1000' start_worker big sh -c 'id -u; container-probe; exec verbs_trainer --rts-only --mr 1073741824'
  wait_for_good_exit "$worker" 120
  assert_contains "user" "$(log_of big)" '^1000$'
  assert_contains "registered" "$(log_of big)" "^rxe0:1: gid $index .* 1073741824 bytes registered, RTS"
  assert_equal "rails and addresses of the pod" "$before" "$(rails_of_pod)"
  end_worker "$worker"
}
rails_of_pod() { rail_netdevs_of "$netns" | while read -r netdev; do echo "$netdev $(address_of "$netns" "$netdev")"; done | paste -sd ' '; }

# assert_not_touched NAME: a container of a pod that requests no HCA.
assert_not_touched() {
  assert_equal "lines about nodes and NCCL" "" "$(grep -E '^(open|NCCL|RDMA)' "$(log_of "$1")" || true)"
  assert_contains "sysfs as it is" "$(log_of "$1")" '^sysfs infiniband rxe0 rxe1 rxe2 rxe3$'
  assert_equal "its netdevs" "" "$(rail_netdevs_of "$netns")"
}
