# Pods, rails and their GID tables. A pod is a network namespace with a management interface eth0 and a rail, if one was added: a netdev
# with a soft RoCE device on it, or a macvlan child of a netdev of the host.

readonly management_bridge=lab0

# make_pod NAME NUMBER: makes namespace NAME with eth0 at 10.99.0.NUMBER, which also has the default route. An existing namespace of an
# engine becomes a pod.
make_pod() {
  local name=$1 number=$2
  if ! ip link show "$management_bridge" > /dev/null 2>&1; then
    # With a fixed MAC address: otherwise the bridge has the address of one of its ports, which changes as pods start and end.
    ip link add "$management_bridge" address 02:00:00:00:63:fe type bridge
    ip addr add 10.99.0.254/24 dev "$management_bridge"
    ip link set "$management_bridge" up
  fi
  [ -e "/run/netns/$name" ] || ip netns add "$name"
  ip link add "mgmt$number" master "$management_bridge" type veth peer name eth0 netns "$name"
  ip link set "mgmt$number" up
  ip -n "$name" link set lo up
  ip -n "$name" link set eth0 up
  ip -n "$name" addr add "10.99.0.$number/24" dev eth0
  ip -n "$name" route add default via 10.99.0.254
}

in_pod() {
  local pod=$1
  shift
  nsenter --net="/run/netns/$pod" "$@"
}

# make_rail POD_A NETDEV_A RXE_A POD_B NETDEV_B RXE_B: makes a link between two pods with an RDMA device at each end. add_address adds
# its addresses later: their slots in the GID table depend on the earlier addresses.
make_rail() {
  local pod_a=$1 netdev_a=$2 rxe_a=$3 pod_b=$4 netdev_b=$5 rxe_b=$6
  ip link add "$netdev_a" netns "$pod_a" type veth peer name "$netdev_b" netns "$pod_b"
  # Both ends are set up first: the rxe port of an end without carrier is DOWN.
  ip -n "$pod_a" link set "$netdev_a" up
  ip -n "$pod_b" link set "$netdev_b" up
  in_pod "$pod_a" rdma link add "$rxe_a" type rxe netdev "$netdev_a"
  in_pod "$pod_b" rdma link add "$rxe_b" type rxe netdev "$netdev_b"
  wait_until "$rxe_a is ACTIVE" 60 port_is_active "$rxe_a"
  wait_until "$rxe_b is ACTIVE" 60 port_is_active "$rxe_b"
}

# make_host_rail NETDEV RXE: makes an RDMA device in the guest's first namespace, as on a node. The peer of the link is idle.
make_host_rail() {
  local netdev=$1 rxe=$2
  ip link add "$netdev" type veth peer name "$netdev-peer"
  ip link set "$netdev-peer" up
  ip link set "$netdev" up
  rdma link add "$rxe" type rxe netdev "$netdev"
  wait_until "$rxe is ACTIVE" 60 port_is_active "$rxe"
}

port_is_active() { grep -qsx "4: ACTIVE" "/sys/class/infiniband/$1/ports/1/state"; }

# add_macvlan PARENT_POD PARENT POD NAME ADDRESS: adds NAME to POD, a macvlan child of PARENT in PARENT_POD (`-`: the first namespace),
# with ADDRESS unless it is empty. Its GIDs are in the table of the parent's RDMA device.
add_macvlan() {
  local parent_pod=$1 parent=$2 pod=$3 name=$4 address=$5 from=()
  [ "$parent_pod" = - ] || from=(-n "$parent_pod")
  ip "${from[@]}" link add lab-child link "$parent" type macvlan mode bridge
  ip "${from[@]}" link set lab-child netns "$pod" name "$name"
  # The address first: an interface that is up has a link-local GID at once, and for a moment no other GID.
  [ -z "$address" ] || add_address "$pod" "$name" "$address"
  ip -n "$pod" link set "$name" up
}

add_address() { ip -n "$1" addr add "$3" dev "$2"; }

# Prints the GID of an IPv4 address, as in sysfs.
gid_of_ipv4() {
  local a b c d
  IFS=. read -r a b c d <<< "$1"
  printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' "$a" "$b" "$c" "$d"
}

# Prints "INDEX GID TYPE" for every used slot, in table order.
gid_table() {
  local port=/sys/class/infiniband/$1/ports/1
  # grep reads the 1024 slots of rxe in one process. A free slot reads as zeros and has no type.
  grep -rv '^0000:0000:0000:0000:0000:0000:0000:0000$' "$port/gids" | sed -e 's/.*\/gids\///' -e 's/:/ /' | sort -n |
    while read -r index gid; do
      # The shell reads the file itself: to start a program for each slot is slow in an emulated CPU.
      echo "$index $gid $({ echo "$(< "$port/gid_attrs/types/$index")"; } 2> /dev/null)"
    done
}

# Prints the index of the RoCE v2 GID of an IPv4 address; nothing if there is none.
gid_index_of() { gid_table "$1" | awk -v gid="$(gid_of_ipv4 "$2")" '$2 == gid && /RoCE v2/ { print $1; exit }'; }

has_gid() { grep -rqsx "$(gid_of_ipv4 "$2")" "/sys/class/infiniband/$1/ports/1/gids"; }
wait_for_gid() { wait_until "$1 has the GID of $2" 60 has_gid "$1" "$2"; }

# Prints the GID that NCCL selects itself (2.21 and later, default settings) in a table without IPv4 in slot 0: the first IPv4 GID.
first_ipv4_gid() { gid_table "$1" | awk '$2 ~ /^0000:0000:0000:0000:0000:ffff:/ && /RoCE v2/ { print $1; exit }'; }

# listens POD PORT: tests that a TCP socket accepts connections there.
listens() { in_pod "$1" grep -qi ":$(printf %04x "$2") .* 0A " /proc/net/tcp /proc/net/tcp6; }

counter() { echo "$(< "/sys/class/infiniband/$1/ports/1/hw_counters/$2")"; }

# rxe supports network namespaces after 6.12. Before, its only UDP socket is in the first namespace, and packets from other namespaces
# never arrive. The check is for that socket, not for the kernel's version.
needs_traffic_between_pods() {
  local pod=$1
  # 12B7 is 4791, the port of RoCE v2.
  if ! in_pod "$pod" grep -qi ':12B7 ' /proc/net/udp; then
    not_possible_here "kernel $(uname -r): soft RoCE has no UDP socket in the namespace of pod $pod, so it carries no traffic there"
  fi
}
