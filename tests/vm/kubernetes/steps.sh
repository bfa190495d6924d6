# shellcheck shell=bash disable=SC2154
# The steps of the case, in their order, and the functions that they use.

readonly resource=rdma-init.io/rails
readonly namespace=team-a
# The image, under a name as of a registry that no program here connects to: the node has it already.
readonly image_name=registry.lab.local/team/rdma-init-node
# Functions for config/kubernetes/base.
readonly system=rdma-init system_label=app.kubernetes.io/name=rdma-init daemonset=rdma-init cluster_daemonset=rdma-init-cluster plugin_container=rdma-device-plugin

make_images() {
  "$here/make-images" --build "$build" "$out/images"
  make_node_image "$build" current node
  make_node_image "$older" older older
  rm -rf "$out/images/storage" "$out/images/run"
}
# make_node_image BUILD TAG NAME: with separate storage, because the storage of the machine may not support layers.
make_node_image() {
  "$project/images/node/build" --build "$1" --tag "$image_name:$2" --out "$out/images/$3.tar" -- --storage-driver vfs \
    --root "$out/images/storage" --runroot "$out/images/run" > "$state/node-image.log" 2>&1 || {
    cat "$state/node-image.log"
    fail "images/node/build failed"
  }
}

# Functions for the cluster.

# trainer NAME COUNT COMMAND...: a pod that requests COUNT HCAs. COMMAND follows rdma-init, the entrypoint of the image. POD_EDIT is a
# filter of jq for the pod.
trainer() {
  local name=$1 count=$2
  shift 2
  jq --null-input --arg name "$name" --arg count "$count" --arg resource "$resource" '{apiVersion: "v1", kind: "Pod", metadata: {$name},
    spec: {automountServiceAccountToken: false, dnsPolicy: "Default", terminationGracePeriodSeconds: 1, containers: [{name: "trainer",
      image: "lab.local/trainer:1", imagePullPolicy: "Never", args: $ARGS.positional,
      resources: {limits: (if $count == "0" then {} else {($resource): $count} end)}}]}}'" | ${POD_EDIT:-.}" --args -- "$@"
}
create() { kubectl -n "$namespace" create -f - > /dev/null; }
pod_field() { kubectl -n "$namespace" get pod "$1" -o "jsonpath={$2}" 2> /dev/null; }
pod_is() { [ "$(pod_field "$1" .status.phase)" = "$2" ]; }
wait_for_pod() { wait_until "pod $1 is $2" "${3:-600}" pod_is "$1" "$2"; }
is_gone() { ! kubectl -n "$namespace" get pod "$1" > /dev/null 2>&1; }
# end_pod NAME [OPTION...]
end_pod() {
  kubectl -n "$namespace" delete pod --wait=false "$@" > /dev/null 2>&1
  wait_until "pod $1 is gone" 600 is_gone "$1"
}
# said NAME REGEX: waits for a matching line in the output of a pod; the pod's log is then in $state/NAME.said.
said() {
  kubectl -n "$namespace" logs "$1" > "$state/$1.said" 2> /dev/null && grep -Eq -- "$2" "$state/$1.said"
}
# allocatable_is COUNT [RESOURCE]
allocatable_is() {
  local name=${2:-$resource}
  [ "$(kubectl get node "$node" -o "jsonpath={.status.allocatable.${name//./\\.}}")" = "$1" ]
}

# The environment of a trainer before it trains.
# shellcheck disable=SC2016 # the container's shell
readonly look_around='env | grep -e ^NCCL -e ^RDMA; echo nodes $(ls /dev/infiniband); echo hcas $(ls /sys/class/infiniband)
  echo memlock $(ulimit -l); echo ready; exec sleep 1000000'

bring_up() {
  step "the control plane beside the node"
  start_apiserver
  start_scheduler_and_controllers
  echo "ok: $(kubectl version 2> /dev/null | grep 'Server Version')"
  kubectl create namespace "$namespace" > /dev/null
  step "the node"
  boot_node
  wait_until "containerd answers" 600 containerd_answers
  import_image images/pause.tar
  import_image images/trainer.tar
  import_image images/node.tar
  import_image images/older.tar
  wait_until "the node is Ready" 900 node_is_ready
  kubectl get nodes -o wide
}

# write_kustomization DIRECTORY RESOURCE [COMPONENT...]: an administrator's overlay of a directory of config/kubernetes, with the image of
# the lab. A config.json in DIRECTORY replaces the one of RESOURCE. This version of Kubernetes needs the AppArmor annotation.
write_kustomization() {
  local directory=$1 objects component
  objects=$(realpath --relative-to="$1" "$project/config/kubernetes")
  {
    printf '%s\n' 'apiVersion: kustomize.config.k8s.io/v1beta1' 'kind: Kustomization' 'namespace: rdma-init' "resources: [$objects/$2]" 'components:'
    shift 2
    for component in apparmor-annotation "$@"; do echo "  - $objects/components/$component"; done
    echo "images: [{name: rdma-init-node, newName: $image_name, newTag: current}]"
    if [ -e "$directory/config.json" ]; then
      printf '%s\n' 'configMapGenerator: [{name: rdma-init, behavior: replace, files: [config.json]}]' 'generatorOptions: {disableNameSuffixHash: true}'
    fi
  } > "$directory/kustomization.yaml"
}

# The overlay of base for this node: an HCA belongs to one pod, its netdev moves into the pod and gets an address.
write_overlay() {
  mkdir -p "$out/lab"
  jq --null-input '{rails: ["rxe0", "rxe1", "rxe2", "rxe3"],
    pools: [{name: "rails", modes: ["exclusive"], resource: "rdma-init.io/rails", network: "rails"}],
    networks: {rails: {mode: "exclusive", routing: {first_table: 100},
      addresses: [range(4) | {rail: ., subnet: "10.100.0.0/16", from: "10.100.\(. + 1).1", to: "10.100.\(. + 1).250", gateway: "10.100.0.1"}]}}
    }' > "$out/lab/config.json"
  write_kustomization "$out/lab" base restart
}

# write_overlay_of NAME [COMPONENT...]: an overlay of one of the platforms' overlays, in $out/NAME. The subnets of the lab replace the
# ranges for documentation.
write_overlay_of() {
  local name=$1 addresses=''
  shift
  case $name in
    vke) addresses='[range(4) | {rail: ., subnet: "10.\(100 + .).0.0/16", per_node: 24}]' ;;
    spiderpool) addresses='[range(8) | {rail: ., subnet: "172.16.\(11 + .).0/24", per_node: 28, gateway: "172.16.\(11 + .).254"}]' ;;
  esac
  mkdir -p "$out/$name"
  [ -z "$addresses" ] || jq ".networks[].addresses = $addresses" "$project/config/kubernetes/overlays/$name/config.json" > "$out/$name/config.json"
  write_kustomization "$out/$name" "overlays/$name" "$@"
}

step_deploy() {
  step "1. kubectl apply --dry-run=server of every overlay, kubectl apply -k"
  local overlay name
  kubectl create namespace "$system" --dry-run=client -o yaml | kubectl apply -f - > /dev/null
  mkdir -p "$out/base" "$out/remove"
  write_kustomization "$out/base" base
  write_kustomization "$out/remove" base restart remove
  for overlay in "$project"/config/kubernetes/overlays/*/; do write_overlay_of "$(basename "$overlay")" restart; done
  for name in base remove $(ls "$project/config/kubernetes/overlays"); do
    kubectl kustomize "$out/$name" > "$state/objects.yaml"
    kubectl apply --dry-run=server -f "$state/objects.yaml" > "$state/dry-run" 2>&1 || {
      cat "$state/dry-run"
      fail "the apiserver refuses $name"
    }
    echo "ok: $name: $(grep -c 'server dry run' "$state/dry-run") objects taken by a server-side dry run"
  done
  kubectl delete namespace "$system" > /dev/null
  for overlay in "$project"/config/kubernetes/overlays/*/pod.yaml; do
    # This version of Kubernetes has no dynamic resource allocation.
    ! grep -q 'claims:' "$overlay" || continue
    kubectl apply --dry-run=server -f "$overlay" > "$state/dry-run" 2>&1 || {
      cat "$state/dry-run"
      fail "the apiserver refuses $overlay"
    }
    echo "ok: $(basename "$(dirname "$overlay")"): $(< "$state/dry-run")"
  done
  label_node
  run_overlays
  write_overlay
  roll apply -k "$out/lab"
  wait_until "the DaemonSet is ready" 1200 daemonset_is_ready
  wait_until "four are allocatable" 600 allocatable_is 4
  kubectl -n "$system" get pods -o wide
  assert_equal "the cluster's configuration" "$(sha256sum < "$out/lab/config.json")" "$(on_node 'sha256sum < /etc/rdma-init/cluster/config.json')"
  assert_equal "the metrics' port" "127.0.0.1:9839" "$(on_node "ss -H -l -t -n 'sport = 9839' | awk '{print \$4}'")"
  show_nodes
  refuse_config
}

# A ConfigMap that is refused: the last valid configuration stays, and the pod is not Ready until the ConfigMap is valid again.
refuse_config() {
  step "1. a ConfigMap with a subnet for documentation"
  cp "$out/lab/config.json" "$state/config.json"
  jq '.networks.rails.addresses = [{subnet: "192.0.2.0/24"}]' "$state/config.json" > "$out/lab/config.json"
  kubectl apply -k "$out/lab" > /dev/null
  wait_until "an event has the reason of config" 300 has_event "Unhealthy: Readiness probe failed: config apply: not ready: refused: "
  wait_until "its pod is not Ready" 300 cluster_is_ready 0
  assert_equal "the cluster's configuration" "$(sha256sum < "$state/config.json")" "$(on_node 'sha256sum < /etc/rdma-init/cluster/config.json')"
  cp "$state/config.json" "$out/lab/config.json"
  roll apply -k "$out/lab" > /dev/null
  wait_until "its pod is Ready" 300 cluster_is_ready 1
}
# cluster_is_ready COUNT
cluster_is_ready() { [ "$(kubectl -n "$system" get daemonset "$cluster_daemonset" -o 'jsonpath={.status.numberReady}')" = "$1" ]; }

# The base without the component `restart`: no pod before the node has the label; then the installer reports that a restart is due, the
# pod is not Ready until the administrator restarts the engine, and its event has the reason.
label_node() {
  local reason='rdma-nri: not ready: not connected to the runtime: cannot connect to'
  step "1. the node gets the label; a restart is due"
  roll apply -k "$out/base" > /dev/null
  assert_equal "pods before the node has the label" 0 "$(kubectl -n "$system" get daemonset "$daemonset" -o 'jsonpath={.status.desiredNumberScheduled}')"
  kubectl label node "$node" rdma-init.io/node=true > /dev/null
  wait_until "the installer has ended" 1200 is_installed
  kubectl -n "$system" logs "daemonset/$daemonset" -c install | grep '^restart due: containerd has not read .*; remedy: systemctl restart containerd$' || fail "the installer reports no restart that is due"
  on_node '/opt/rdma-init/bin/rdma-hook install --status' | grep '^restart due: ' || fail "--status reports no restart that is due"
  wait_until "an event has the reason of rdma-nri" 300 has_event "Unhealthy: Readiness probe failed: $reason"
  ! daemonset_is_ready || fail "the pod is Ready without a connection to containerd"
  kubectl -n "$system" get events -o 'jsonpath={range .items[?(@.reason=="Unhealthy")]}{.message}{"\n"}{end}' | grep -m 1 "$reason"
  on_node 'systemctl restart containerd'
  wait_until "containerd answers" 600 containerd_answers
  on_node '/opt/rdma-init/bin/rdma-hook install --status' | grep '^restart due: ' && fail "--status does not detect the restart by hand"
  wait_until "the node is Ready" 600 node_is_ready
  wait_until "the DaemonSet is ready" 600 daemonset_is_ready
}
is_installed() { [ "$(kubectl -n "$system" get pods -l "$system_label" -o 'jsonpath={.items[0].status.conditions[?(@.type=="Initialized")].status}')" = True ]; }
# has_event TEXT: an event of a pod of the DaemonSets begins with TEXT.
has_event() { kubectl -n "$system" get events -o 'jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}' | grep -q -F -- "$1"; }

# The overlays that apply to this node, one after the other. For vke and ack the netdev of an HCA has an address.
# shellcheck disable=SC2016 # the node's shell
run_overlays() {
  step "2. the pods of the overlays"
  kubectl label node "$node" vke.node.rdma.mode=shared > /dev/null
  on_node 'for rail in 0 1 2 3; do ip address add "10.10$rail.7.1/16" dev "v$rail"; done'
  run_overlay vke vke.volcengine.com/rdma 4 2
  kubectl label node "$node" vke.node.rdma.mode- aliyun.accelerator/rdma=true > /dev/null
  run_overlay ack rdma/hca 256 1
  on_node 'for rail in 0 1 2 3; do ip address del "10.10$rail.7.1/16" dev "v$rail"; done'

  kubectl label node "$node" aliyun.accelerator/rdma- nvidia.com/gpu.present=true > /dev/null
  kubectl patch node "$node" --subresource=status --type=merge -p '{"status": {"capacity": {"nvidia.com/gpu": "8"}}}' > /dev/null
  on_node 'for slot in 11 12 13 14 15 16 17 18; do
    ip link add "enp${slot}s0f0np0" type veth peer name "q$slot" netns switch
    ip -n switch link set "q$slot" up
    ip link set "enp${slot}s0f0np0" up
    rdma link add "rxe$slot" type rxe netdev "enp${slot}s0f0np0"
  done'
  run_overlay spiderpool rdma-init.io/rails 112 8
  on_node 'for slot in 11 12 13 14 15 16 17 18; do ip link del "enp${slot}s0f0np0"; done'
  kubectl label node "$node" nvidia.com/gpu.present- > /dev/null
  echo "not run: ib-sriov and nvidia, whose HCAs are InfiniBand; beside-dranet, whose claims came after this Kubernetes"
}

# run_overlay NAME RESOURCE ALLOCATABLE HCAS: its pod, with another image and command, starts and exports as many HCAs as it requests.
run_overlay() {
  local overlay=$project/config/kubernetes/overlays/$1 pod
  roll apply -k "$out/$1" > /dev/null
  wait_until "$3 of $2 are allocatable" 600 allocatable_is "$3" "$2"
  pod=$(kubectl create --dry-run=client -f "$overlay/pod.yaml" -o 'jsonpath={.metadata.name}')
  kubectl create --dry-run=client -f "$overlay/pod.yaml" -o json |
    jq --arg command "$look_around" 'del(.metadata.namespace) | .spec.containers[0] += {image: "lab.local/trainer:1", args: ["sh", "-c", $command]}' | create
  wait_for_pod "$pod" Running
  wait_until "$pod prints ready" 300 said "$pod" ready
  echo "ok: $1: $(paste -sd ' ' "$state/$pod.said")"
  assert_equal "HCAs that the pod of $1 exports" "$4" "$(sed -n -e 's/^NCCL_IB_HCA==\?//p' "$state/$pod.said" | tr , '\n' | grep -c .)"
  end_pod "$pod" --grace-period=1
  wait_until "no grant is left" 300 nothing_is_held
}

daemonset_is_ready() { [ "$(kubectl -n "$system" get daemonset "$daemonset" -o 'jsonpath={.status.numberReady}')" = 1 ]; }

# Functions for the node.

held() { on_node '. /run/lab/lab/guest/rails.sh; ledger=/run/rdma-hook; bookings'; }
nothing_is_held() { [ -z "$(held)" ]; }
# node_state FILE: network, RDMA and /etc of the node, without the bridge and the veths of eth0, which the CNI plugin owns.
node_state() {
  on_node '. /run/lab/lab/guest/assert.sh; . /run/lab/lab/guest/rails.sh; ledger=/run/rdma-hook
node_state | grep -v -e cni0 -e \"veth -e /run/netns -e "^cni-"
find /etc /usr/local -type f -exec sha256sum {} + | sort -k 2' > "$1"
}
node_is_as_before() { node_state "$1.now" && cmp --quiet "$1" "$1.now"; }
assert_node_as_before() {
  if ! (wait_until "the node is unchanged" 120 node_is_as_before "$1") > /dev/null; then
    diff --unified=0 "$1" "$1.now" | cut -c 1-300 || true
    fail "the node has changed: the lines above differ (- before, + now)"
  fi
  echo "ok: the node is as before: $(wc -l < "$1") lines of links, addresses, routes, rules, RDMA links, GIDs, and of files in /etc and /usr/local"
}

plugin_log() { kubectl -n "$system" logs "$(system_pod)" -c "$plugin_container" 2> /dev/null; }
system_pod() { kubectl -n "$system" get pods -l "$system_label" --field-selector=status.phase=Running -o 'jsonpath={.items[0].metadata.name}'; }
registrations() { plugin_log | grep -c "registered with the kubelet" || true; }
registered_after() { [ "$(registrations)" -gt "$1" ]; }
# The state that must not change when a program below the pods restarts.
running_pods() { kubectl -n "$namespace" get pods -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}'; }
assert_pods_untouched() {
  assert_equal "$1: the pods and their containers" "$pods_before" "$(running_pods)"
  assert_equal "$1: what is held" "$held_before" "$(held)"
}

# roll ARGUMENT...: runs kubectl with ARGUMENTS, which change the DaemonSets, and waits until the change is on the node.
roll() {
  kubectl "$@"
  kubectl -n "$system" rollout status "daemonset/$daemonset" --timeout=900s
  kubectl -n "$system" rollout status "daemonset/$cluster_daemonset" --timeout=900s
}

show_nodes() { kubectl get nodes -o custom-columns="NAME:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,RAILS:.status.allocatable.${resource/./\\.},CAPACITY:.status.capacity.${resource/./\\.}"; }

# Two pods that request one HCA each move bytes by the exports of rdma-init.
step_two_pods_move_bytes() {
  step "2. two pods move bytes with ib_write_bw"
  trainer server 1 perftest-by-nccl-env ib_write_bw -s 65536 -n 50 -F | create
  wait_for_pod server Running
  wait_until "the server listens" 300 listens server
  trainer client 1 perftest-by-nccl-env ib_write_bw -s 65536 -n 50 -F "$(pod_field server .status.podIP)" |
    jq '.spec.restartPolicy = "Never"' | create
  wait_for_pod client Succeeded
  said client '^ *65536 +50 ' || { cat "$state/client.said"; fail "no data moved"; }
  sed 's/^/[client] /' "$state/client.said" | grep -e by -e 65536
  echo "ok: bytes moved between two pods"
  end_pod client
  end_pod server
}

# listens POD: tests port 18515 of perftest. Without a terminal, perftest prints that it listens only after a client has connected.
listens() { kubectl -n "$namespace" exec "$1" -- grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; }

# The two workers of a training job find each other by the index and move bytes over two HCAs each.
step_job() {
  step "2. a Job with parallelism 2"
  # shellcheck disable=SC2016 # the container's shell
  trainer worker 2 sh -c 'if mkdir /rendezvous/first 2> /dev/null; then hostname -i > /rendezvous/address
      exec perftest-by-nccl-env ib_write_bw -s 65536 -n 50 -F; fi
    until [ -s /rendezvous/address ]; do sleep 1; done; sleep 15; exec perftest-by-nccl-env ib_write_bw -s 65536 -n 50 -F "$(cat /rendezvous/address)"' |
    jq '{apiVersion: "batch/v1", kind: "Job", metadata: {name: "training"}, spec: {parallelism: 2, completions: 2, backoffLimit: 0,
      template: {spec: (.spec | .restartPolicy = "Never" | .volumes = [{name: "r", hostPath: {path: "/run/lab-rendezvous", type: "DirectoryOrCreate"}}]
        | .containers[0].volumeMounts = [{name: "r", mountPath: "/rendezvous"}])}}}' | create
  wait_until "the job is done" 900 job_is_done
  kubectl -n "$namespace" logs -l job-name=training --prefix --tail=-1 | grep -e 'by NCCL' -e ' 65536 ' || fail "no data moved"
  kubectl -n "$namespace" get job training
  kubectl -n "$namespace" delete job training > /dev/null
}
job_is_done() { [ "$(kubectl -n "$namespace" get job training -o 'jsonpath={.status.succeeded}')" = 2 ]; }

# The pods of the example's Job test the fabric, and only then start their command. This version of Kubernetes has no indexed Jobs, and
# the lab no DNS: two pods have the index, and the address of the first pod.
step_ping() {
  step "2. rdma-ping before the command of a Job"
  ping_pod 0 '{fieldRef: {fieldPath: "status.podIP"}}' | create
  wait_for_pod ping-0 Running
  ping_pod 1 | jq --arg address "$(pod_field ping-0 .status.podIP)" '(.spec.containers[0].env[] | select(.name == "MASTER_ADDR")).value = $address' | create
  wait_for_pod ping-0 Succeeded
  wait_for_pod ping-1 Succeeded
  said ping-0 '^started as rank 0$' || { cat "$state/ping-0.said"; fail "the command of rank 0 has not started"; }
  said ping-1 '^started as rank 1$' || { cat "$state/ping-1.said"; fail "the command of rank 1 has not started"; }
  sed 's/^/[rank 0] /' "$state/ping-0.said"
  end_pod ping-0
  end_pod ping-1

  step "2. rdma-ping without the second rank: the command does not start"
  ping_pod 0 '{fieldRef: {fieldPath: "status.podIP"}}' | create
  wait_for_pod ping-0 Failed
  said ping-0 'rank 1' || { cat "$state/ping-0.said"; fail "rank 1 is not named"; }
  ! grep started "$state/ping-0.said" || fail "the command has started"
  end_pod ping-0
}
# ping_pod INDEX [SOURCE]: a pod of the Job with an HCA. SOURCE: of MASTER_ADDR, as in a pod's env.
ping_pod() {
  python3 -c 'import json, sys, yaml; print(*map(json.dumps, yaml.safe_load_all(sys.stdin)))' < "$project/config/kubernetes/overlays/example/ping.yaml" |
    jq --arg index "$1" --arg resource "$resource" --argjson source "$(jq --null-input "${2:-null}")" 'select(.kind == "Job").spec.template.spec
      | {apiVersion: "v1", kind: "Pod", metadata: {name: "ping-\($index)"}, spec: .}
      | .spec += {automountServiceAccountToken: false, dnsPolicy: "Default", terminationGracePeriodSeconds: 1} | del(.spec.subdomain)
      | .spec.containers[0] += {image: "lab.local/trainer:1", imagePullPolicy: "Never", command: ["rdma-init", "--", "rdma-ping", "--"],
          args: ["sh", "-c", "echo started as rank $JOB_COMPLETION_INDEX"], resources: {limits: {($resource): "1"}}}
      | .spec.containers[0].env += [{name: "JOB_COMPLETION_INDEX", value: $index}]
      | (.spec.containers[0].env[] | select(.name == "RDMA_PING_TIMEOUT")).value = "120"
      | if $source then (.spec.containers[0].env[] | select(.name == "MASTER_ADDR")) = {name: "MASTER_ADDR", valueFrom: $source} else . end'
}

step_fifth_pod() {
  step "3. the fifth pod waits"
  local name
  for name in one two three four five; do trainer "$name" 1 sh -c "$look_around" | create; done
  for name in one two three four; do
    wait_for_pod "$name" Running
    wait_until "$name prints ready" 300 said "$name" ready
    echo "ok: $name: $(paste -sd ' ' "$state/$name.said")"
  done
  assert_equal "different HCAs" 4 "$(grep -h '^NCCL_IB_HCA=' "$state"/{one,two,three,four}.said | sort -u | grep -c .)"
  wait_until "five is not scheduled" 120 is_not_scheduled
  echo "ok: five is Pending: $(pod_field five '.status.conditions[?(@.type=="PodScheduled")].message')"
  kubectl -n "$namespace" get pods
  end_pod two
  wait_for_pod five Running
  wait_until "five prints ready" 300 said five ready
  echo "ok: two was deleted, five runs: $(paste -sd ' ' "$state/five.said")"
}
is_not_scheduled() { pod_field five '.status.conditions[?(@.type=="PodScheduled")].message' | grep -q "Insufficient $resource"; }

step_exec_and_others() {
  step "4. exec has the limit of locked memory; a pod that requests no HCA is unchanged"
  assert_equal "memlock of kubectl exec" unlimited "$(kubectl -n "$namespace" exec one -- sh -c 'ulimit -l')"
  trainer plain 0 sh -c "$look_around" | create
  POD_EDIT='.spec.containers[0].env = [{name: "NVIDIA_VISIBLE_DEVICES", value: "all"}] | .metadata.annotations = {"nvidia.com/gpu": "0"}
    | .spec.volumes = [{name: "gpu", hostPath: {path: "/dev/null"}}]
    | .spec.containers[0].volumeMounts = [{name: "gpu", mountPath: "/dev/nvidia0"}]' trainer gpu 0 sh -c "$look_around" | create
  trainer agent 0 sh -c "$look_around" | jq '{apiVersion: "apps/v1", kind: "DaemonSet", metadata: {name: "agent"}, spec: {
    selector: {matchLabels: {app: "agent"}}, template: {metadata: {labels: {app: "agent"}}, spec:
      (.spec | .hostNetwork = true | .containers[0].securityContext = {privileged: true})}}}' | create
  wait_until "the privileged DaemonSet runs" 600 agent_is_ready
  wait_for_pod plain Running
  wait_for_pod gpu Running
  local name
  for name in plain gpu "$(kubectl -n "$namespace" get pods -l app=agent -o 'jsonpath={.items[0].metadata.name}')"; do
    assert_untouched "$name"
  done
  kubectl -n "$namespace" delete daemonset agent > /dev/null
  end_pod plain
  end_pod gpu
  wait_until "the DaemonSet's pod is gone" 600 agent_is_gone
}
agent_is_gone() { [ -z "$(kubectl -n "$namespace" get pods -l app=agent -o name)" ]; }
agent_is_ready() { [ "$(kubectl -n "$namespace" get daemonset agent -o 'jsonpath={.status.numberReady}')" = 1 ]; }
# assert_untouched POD: its bundle has no change of this project except the hook `verify`, which every container has.
assert_untouched() {
  local id
  id=$(pod_field "$1" '.status.containerStatuses[0].containerID')
  assert_equal "$1: what its config.json has of ours" "" "$(on_node "jq -c '[.mounts[] | select(.source | test(\"rdma\"))],
    [.process.env[] | select(test(\"^(RDMA_INIT|NCCL)\"))], [.process.rlimits[]? | select(.type == \"RLIMIT_MEMLOCK\")],
    [.hooks // {} | .[][] | select(.args[1] != \"verify\")] | select(. != [])' \
    /run/containerd/io.containerd.runtime.v2.task/k8s.io/${id#containerd://}/config.json")"
}

step_restarts() {
  local before
  step "5. the kubelet is restarted"
  pods_before=$(running_pods)
  held_before=$(held)
  before=$(registrations)
  on_node 'systemctl restart kubelet'
  wait_until "the plugin has registered again" 600 registered_after "$before"
  echo "ok: the plugin: $(plugin_log | grep "registered with the kubelet" | tail -n 1)"
  wait_until "four are allocatable again" 600 allocatable_is 4
  wait_until "the node is Ready" 600 node_is_ready
  assert_pods_untouched "after the kubelet's restart"

  step "5. containerd is restarted"
  on_node 'systemctl restart containerd'
  wait_until "containerd answers" 600 containerd_answers
  sleep 30
  wait_until "the node is Ready" 600 node_is_ready
  wait_until "four are allocatable" 600 allocatable_is 4
  assert_pods_untouched "after containerd's restart"

  step "5. the DaemonSet is rolled out again"
  roll -n "$system" rollout restart "daemonset/$daemonset"
  wait_until "the new plugin has registered" 600 registered_after 0
  wait_until "four are allocatable" 600 allocatable_is 4
  assert_pods_untouched "after the rollout"
}

# plug_in LEFT: waits until pods have LEFT HCAs. A restarted containerd does not report the end of older pods: rdma-nri detects it and
# releases their HCAs. A NIC returns to the node with the end of the namespace; a software netdev has ended.
plug_in() {
  wait_until "rdma-nri has released the HCAs of ended pods" 300 records_are "$1"
  on_node '/run/lab/vm/guest/plug-in'
}
records_are() { [ "$(on_node 'ls /run/rdma-hook/network | wc -l')" = "$1" ]; }

step_link_down() {
  step "5. a link goes down and up"
  local free
  end_pod five
  plug_in 3
  wait_until "an HCA is free" 600 one_is_free
  wait_until "four are allocatable" 600 allocatable_is 4
  free=$(on_node 'ls /sys/class/net | grep -E "^v[0-3]$" | head -n 1')
  on_node "ip -n switch link set p${free#v} down"
  wait_until "three are allocatable" 600 allocatable_is 3
  echo "ok: $free is down: $(show_nodes | tail -n 1)"
  echo "ok: the plugin: $(plugin_log | grep 'not healthy' | tail -n 1)"
  on_node "ip -n switch link set p${free#v} up"
  wait_until "four are allocatable" 600 allocatable_is 4
  echo "ok: $free is up: $(show_nodes | tail -n 1)"
}
one_is_free() { [ -n "$(on_node 'ls /sys/class/net | grep -E "^v[0-3]$" || true')" ]; }

step_force_and_reboot() {
  step "6. a pod is force-deleted"
  end_pod three --force --grace-period=0
  plug_in 2
  wait_until "two grants exist" 600 holders_are 2
  echo "ok: what is held: $(held | paste -sd ' ')"
  step "6. the node is rebooted"
  reboot_node
  wait_until "the node is Ready" 900 node_is_ready
  wait_until "four are allocatable" 900 allocatable_is 4
  wait_until "one runs again" 900 has_restarted one
  wait_until "one prints ready" 600 said one ready
  echo "ok: after the reboot: $(paste -sd ' ' "$state/one.said")"
  end_pod one
  end_pod four
  wait_until "no grant is left" 300 nothing_is_held
  echo "ok: nothing is held; netdevs: $(on_node 'ls /sys/class/net | paste -sd " "')"
}
has_restarted() { [ "$(pod_field "$1" '.status.containerStatuses[0].restartCount')" -ge 1 ] && [ -n "$(pod_field "$1" '.status.containerStatuses[0].state.running.startedAt')" ]; }
holders_are() { [ "$(on_node 'ls /sys/class/net | grep -c -E "^v[0-3]$" || true')" = $((4 - $1)) ]; }

step_drain_and_downgrade() {
  local name
  step "6. the node is drained"
  plug_in 0
  trainer drained 1 sh -c "$look_around" | create
  wait_until "drained prints ready" 600 said drained ready
  kubectl drain "$node" --ignore-daemonsets --force --timeout=600s
  is_gone drained || fail "the pod still exists after the drain"
  wait_until "no grant is left" 300 nothing_is_held
  wait_until "the DaemonSet is ready" 60 daemonset_is_ready
  kubectl get nodes
  kubectl -n "$system" get pods

  step "6. an older version"
  mkdir -p "$out/older"
  cat > "$out/older/kustomization.yaml" << END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../lab]
images: [{name: $image_name, newTag: older}]
END
  roll apply -k "$out/older"
  assert_programs_of "$older"
  kubectl uncordon "$node"
  plug_in 0
  wait_until "four are allocatable" 600 allocatable_is 4
  for name in stays ends; do
    trainer "$name" 1 sh -c "$look_around" | create
    wait_until "$name prints ready" 600 said "$name" ready
    echo "ok: $name: $(paste -sd ' ' "$state/$name.said")"
  done

  step "6. the newer version again"
  pods_before=$(running_pods)
  held_before=$(held)
  roll -n "$system" rollout undo "daemonset/$daemonset" "daemonset/$cluster_daemonset"
  assert_programs_of "$build"
  wait_until "four are allocatable" 600 allocatable_is 4
  assert_pods_untouched "after the upgrade"
  assert_equal "memlock of kubectl exec" unlimited "$(kubectl -n "$namespace" exec stays -- sh -c 'ulimit -l')"
  end_pod ends
  wait_until "the HCAs of ended pods are released" 300 records_are 1
  end_pod stays
  wait_until "no grant is left" 300 nothing_is_held
}
# assert_programs_of BUILD: compares the programs that the installer has put on the node.
assert_programs_of() {
  strip -o "$state/rdma-hook" "$1/hook/rdma-hook"
  assert_equal "/opt/rdma-init/bin/rdma-hook" "$(sha256sum < "$state/rdma-hook")" "$(on_node 'sha256sum < /opt/rdma-init/bin/rdma-hook')"
}

# No program writes the CDI file on this node.
step_cdi() {
  step "7. \"cdi\": true and no CDI file: the pod starts, with device nodes"
  plug_in 0
  wait_until "four are allocatable" 600 allocatable_is 4
  cp "$out/lab/config.json" "$state/config.json"
  local before
  before=$(registrations)
  jq '. + {device_plugin: {cdi: true}}' "$state/config.json" > "$out/lab/config.json"
  kubectl apply -k "$out/lab" > /dev/null
  wait_until "the node has the configuration" 300 config_is_there
  # The plugin reads the configuration within seconds, and then registers anew.
  wait_until "the plugin allocates CDI devices" 120 registered_after "$before"
  trainer cdi 1 sh -c "$look_around" | create
  wait_until "cdi prints ready" 300 said cdi ready
  echo "ok: cdi: $(paste -sd ' ' "$state/cdi.said")"
  grep -q '^nodes .*uverbs' "$state/cdi.said" || fail "it has no device node"
  plugin_log | grep 'no file in /etc/cdi or /var/run/cdi' || fail "the plugin does not report the missing file"
  end_pod cdi
  wait_until "no grant is left" 300 nothing_is_held
}
config_is_there() { [ "$(on_node 'sha256sum < /etc/rdma-init/cluster/config.json')" = "$(sha256sum < "$out/lab/config.json")" ]; }

# With the command of docs/kubernetes.md.
step_removal() {
  step "8. removal, while the last pods end"
  local name
  plug_in 0
  wait_until "four are allocatable" 600 allocatable_is 4
  for name in last1 last2; do trainer "$name" 1 sh -c "$look_around" | create; done
  for name in last1 last2; do wait_until "$name prints ready" 600 said "$name" ready; done
  kubectl -n "$namespace" delete pod --all --wait=false
  roll apply -k "$out/remove"
  kubectl -n "$system" logs "daemonset/$daemonset" -c install
  assert_equal "pods that write the cluster's configuration" 0 "$(kubectl -n "$system" get daemonset "$cluster_daemonset" -o 'jsonpath={.status.desiredNumberScheduled}')"
  kubectl delete -k "$out/remove" > /dev/null
  assert_equal "what is left in /etc" "" "$(on_node 'find /etc/rdma-init 2> /dev/null; true')"
  on_node '/run/lab/vm/guest/plug-in'  # software netdevs have ended with the pods' namespaces
  assert_node_as_before "$state/before"
}

all_steps() {
  bring_up
  # From here on the bridge of eth0 exists.
  trainer first 0 true | create
  wait_until "a pod has started" 600 said first '.*'
  end_pod first
  node_state "$state/before"
  step_deploy
  step_two_pods_move_bytes
  step_job
  step_ping
  step_fifth_pod
  step_exec_and_others
  step_restarts
  step_link_down
  step_force_and_reboot
  step_drain_and_downgrade
  step_cdi
  step_removal
  echo "passed"
}
