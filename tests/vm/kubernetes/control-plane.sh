# shellcheck shell=bash disable=SC2154
# The control plane of the lab: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, on the machine that runs the tests, in a
# separate network namespace. In the emulated guest these programs are too slow for a kubelet.
#
# The script that sources this file must set `kubernetes` (the directory that `build` prints) and `state` (an empty directory).

readonly api_port=6443
readonly api_address=192.0.2.1
# The address of the guest behind QEMU's user network, and the address of this machine in the guest.
readonly node_address=10.0.2.15 gateway_address=10.0.2.2

# in_own_network SCRIPT ARGUMENT...: runs SCRIPT again in separate network and process namespaces: all its processes end with it.
in_own_network() {
  exec unshare --net --mount --pid --fork --kill-child --mount-proc -- env KUBERNETES_OWN_NETWORK=yes "$@"
}

# The apiserver connects to the kubelet by the node's own address, which QEMU forwards: it is made local here. Without `src` the answer
# would have that address as its source too, and the guest answers only to QEMU's own host address.
set_network_up() {
  ip link set lo up
  ip address add "$api_address/32" dev lo
  ip route replace local "$node_address" dev lo table local src "$api_address"
}

# started NAME PROGRAM ARGUMENT...: starts it in the background, with its output in $state/NAME.log.
started() {
  local name=$1
  shift
  "$@" > "$state/$name.log" 2>&1 &
  echo "$!" > "$state/$name.pid"
}

still_runs() {
  [ -d "/proc/$(< "$state/$1.pid")" ] || fail "$1 ended: $(tail -n 3 "$state/$1.log")"
}

# kubeconfig SERVER: for an administrator. The apiserver makes its certificate at its start, so that no client can verify it.
kubeconfig() {
  cat << END
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "$1", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: lab-token}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
END
}

api_answers() {
  still_runs kube-apiserver
  [ "$(kubectl get --raw /readyz 2> /dev/null)" = ok ]
}
kubectl() { "$kubernetes/kubectl" --kubeconfig "$state/kubeconfig" "$@"; }

start_apiserver() {
  mkdir -p "$state/certificates"
  openssl genrsa -out "$state/sa.key" 2048 2> /dev/null
  echo 'lab-token,admin,admin,"system:masters"' > "$state/tokens.csv"
  kubeconfig "https://127.0.0.1:$api_port" > "$state/kubeconfig"
  kubeconfig "https://$gateway_address:$api_port" > "$state/kubelet.kubeconfig"
  started etcd "$kubernetes/etcd" --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 --unsafe-no-fsync
  # Without the admission of service accounts: no program here reads their tokens.
  started kube-apiserver "$kubernetes/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 \
    --advertise-address "$api_address" --secure-port "$api_port" --insecure-port 0 --cert-dir "$state/certificates" \
    --service-cluster-ip-range 10.96.0.0/24 --token-auth-file "$state/tokens.csv" --authorization-mode RBAC \
    --service-account-issuer https://lab --service-account-key-file "$state/sa.key" \
    --service-account-signing-key-file "$state/sa.key" --disable-admission-plugins ServiceAccount --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP
  wait_until "the apiserver is ready" 300 api_answers
}

start_scheduler_and_controllers() {
  started kube-scheduler "$kubernetes/kube-scheduler" --kubeconfig "$state/kubeconfig" --leader-elect=false --port=0 \
    --secure-port=10259 --bind-address 127.0.0.1 --cert-dir "$state/certificates-scheduler"
  # An emulated node answers late and must not be marked as lost.
  started kube-controller-manager "$kubernetes/kube-controller-manager" --kubeconfig "$state/kubeconfig" --leader-elect=false \
    --port=0 --secure-port=10257 --bind-address 127.0.0.1 --cert-dir "$state/certificates-controllers" \
    --controllers=daemonset,job,namespace,garbagecollector,podgc,nodelifecycle,serviceaccount \
    --node-monitor-grace-period=120s --pod-eviction-timeout=1h
}
