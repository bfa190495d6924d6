# Setups that several cases share.

# make_second_node NETDEV: makes rxe0 on NETDEV of this node, and rxe1 with 10.5.0.2 at the other end of its link, in namespace node2, which
# represents the other node.
make_second_node() {
  local netdev=$1
  ip netns add node2
  ip link add "$netdev" type veth peer name "$netdev" netns node2
  ip link set "$netdev" up
  ip -n node2 link set "$netdev" up
  ip -n node2 addr add 10.5.0.2/24 dev "$netdev"
  rdma link add rxe0 type rxe netdev "$netdev"
  in_pod node2 rdma link add rxe1 type rxe netdev "$netdev"
  wait_until "rxe0 is ACTIVE" 60 port_is_active rxe0
  wait_until "rxe1 is ACTIVE" 60 port_is_active rxe1
}

# add_address_after_neighbour NETDEV: adds 10.5.0.1 to NETDEV of make_second_node. In the GID table it follows the address of another pod's
# child of NETDEV. Sets index.
add_address_after_neighbour() {
  ip netns add neighbour
  add_macvlan - "$1" neighbour net1 10.5.0.9/24
  wait_for_gid rxe0 10.5.0.9
  ip addr add 10.5.0.1/24 dev "$1"
  wait_for_gid rxe0 10.5.0.1
  index=$(gid_index_of rxe0 10.5.0.1)
  assert_greater "its index, after the neighbour's" "$index" "$(gid_index_of rxe0 10.5.0.9)"
}

# two_pods_on_a_rail: makes pods a and b, with rxe0 of a and rxe1 of b on one rail, whose netdevs have no address.
two_pods_on_a_rail() {
  make_pod a 1
  make_pod b 2
  make_rail a net1 rxe0 b net1 rxe1
}

# Makes pods a (10.1.0.1 on rxe0) and b (10.1.0.2 on rxe1) on one rail. In each GID table, GIDs of other containers precede the pod's own
# GID: three other containers have children of a's rail netdev, one of b's. All interfaces are named net1, so that a name identifies
# none. Sets index_a and index_b. Only for kernels whose soft RoCE carries traffic between the two.
two_pods_behind_foreign_gids() {
  local other
  two_pods_on_a_rail
  needs_traffic_between_pods a
  for other in 50 51 52; do
    ip netns add "o$other"
    add_macvlan a net1 "o$other" net1 "10.1.0.$other/24"
    wait_for_gid rxe0 "10.1.0.$other"
  done
  ip netns add o60
  add_macvlan b net1 o60 net1 10.1.0.60/24
  wait_for_gid rxe1 10.1.0.60
  add_address a net1 10.1.0.1/24
  add_address b net1 10.1.0.2/24
  wait_for_gid rxe0 10.1.0.1
  wait_for_gid rxe1 10.1.0.2
  index_a=$(gid_index_of rxe0 10.1.0.1)
  index_b=$(gid_index_of rxe1 10.1.0.2)
  step "GID table of rxe0 (pod a is 10.1.0.1)" && gid_table rxe0
  step "GID table of rxe1 (pod b is 10.1.0.2)" && gid_table rxe1
}
