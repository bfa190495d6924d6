# shellcheck shell=bash
# Setups that several cases share.

# Makes pods a (10.1.0.1 on rxe0) and b (10.1.0.2 on rxe1) on one rail. In each GID table, GIDs of other containers precede the pod's own
# GID: three other containers have children of a's rail netdev, one of b's. All interfaces are named net1, so that a name identifies
# none. Sets index_a and index_b. Only for kernels whose soft RoCE carries traffic between the two.
two_pods_behind_foreign_gids() {
  local other
  make_pod a 1
  make_pod b 2
  make_rail a net1 rxe0 b net1 rxe1
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
