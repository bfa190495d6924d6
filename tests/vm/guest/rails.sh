# A node with many rails, like a GPU server, its network in config.json, and a record of the node's state to compare before and after.

# The switch ends of the links are in this namespace, so that no case takes them for netdevs of the node.
readonly switch_pod=switch

# make_rails RAILS [NODES]: makes HCA rxe0, rxe1, ... on netdev v0, v1, ... in the guest's first namespace. The link of rail R ends in
# bridge bR of a switch, with the gateway address 10.(100+R).0.1/16. With more than one node the numbers continue: rail 0 of the second
# node has HCA rxeRAILS, on the same bridge. The netdevs have only link-local addresses.
make_rails() {
  local rails=$1 nodes=${2:-1} rail number
  ip netns add "$switch_pod"
  ip -n "$switch_pod" link set lo up
  # A gateway forwards, also between two hosts of its subnet.
  in_pod "$switch_pod" sysctl -q -w net.ipv4.ip_forward=1
  for ((rail = 0; rail < rails; rail++)); do
    ip -n "$switch_pod" link add "b$rail" type bridge
    ip -n "$switch_pod" addr add "$(gateway_of "$rail")/16" dev "b$rail"
    ip -n "$switch_pod" link set "b$rail" up
  done
  for ((number = 0; number < rails * nodes; number++)); do
    ip link add "v$number" type veth peer name "p$number" netns "$switch_pod"
    ip -n "$switch_pod" link set "p$number" master "b$((number % rails))" up
    ip link set "v$number" up
    rdma link add "rxe$number" type rxe netdev "v$number"
  done
  for ((number = 0; number < rails * nodes; number++)); do
    wait_until "rxe$number is ACTIVE" 60 port_is_active "rxe$number"
  done
}

# end_rails: removes the rails of make_rails. Some may be gone already: a veth and its rxe end with the namespace to which it has moved.
# The netdev of a NIC would return to the node.
end_rails() {
  ip netns delete "$switch_pod"
  wait_until "the rails are gone" 60 no_rails
}
no_rails() { [ -z "$(ls /sys/class/infiniband)" ]; }

gateway_of() { echo "10.$((100 + $1)).0.1"; }

# rails_network RAILS [NODES] [FILTER]: prints a network of config.json for them, changed by a filter of jq. Rail R of node N assigns
# addresses of 10.(100+R).(1+N).*, from 1 on.
rails_network() {
  jq --null-input --argjson rails "$1" --argjson nodes "${2:-1}" '{
    mode: "shared", child: "macvlan",
    addresses: [range($rails * $nodes) | (. % $rails) as $rail | (1 + (. - $rail) / $rails) as $third | {
      rail: ., subnet: "10.\(100 + $rail).0.0/16", from: "10.\(100 + $rail).\($third).1", to: "10.\(100 + $rail).\($third).250",
      gateway: "10.\(100 + $rail).0.1"}],
    routing: {first_table: 100}, gateway_test: "fail", align_gids: true
  }'" | ${3:-.}"
}

# network_config NAME NETWORK [FILTER]: writes the node's configuration with one pool of all HCAs and this network, changed by FILTER.
# The rails are in the order of the HCA numbers.
network_config() {
  local hcas
  hcas=$(printf '%s\n' /sys/class/infiniband/* | sed 's/.*\///' | sort -V | jq --raw-input . | jq --slurp .)
  hook_config "$(jq --null-input --arg name "$1" --argjson network "$2" --argjson hcas "$hcas" '{
    rails: $hcas,
    pools: [{name: "rails", modes: ["shared", "exclusive", "shared-multi", "hca"], network: $name}],
    networks: {($name): $network},
    annotations_may_request: ["*"]
  }'" | ${3:-.}")"
}

# hcas FIRST COUNT: prints rxeFIRST and so on, as a list for the annotation rdma-init.io/devices.
hcas() {
  local list=() number
  for ((number = $1; number < $1 + $2; number++)); do list+=("rxe$number"); done
  (IFS=, && echo "${list[*]}")
}

# ask DEVICES MODE [NETWORK]: sets the request of the containers of further bundles to rdma-hook. After ask_own they have their own network
# namespace.
ask() {
  ANNOTATIONS=("rdma-init.io/devices=$1" "rdma-init.io/mode=$2" ${3:+"rdma-init.io/network=$3"})
  through_hook
}
ask_own() {
  ask "$@"
  BUNDLE_EDIT+=" | $own_network"
}

# end_pod POD...: also releases its grants. In the namespace of a pod a grant ends with the pod.
end_pod() {
  local pod
  for pod in "$@"; do ip netns delete "$pod"; done
  "$hook" recover
}

# exports_of OUTPUT NAME: prints the value of a variable in the output of `env`.
exports_of() { sed -n -e "s/^$2=//p" "$1"; }

# Prints the IPv4 address of a netdev in a pod; nothing if it has none.
address_of() { ip -n "$1" -json addr show dev "$2" | jq --raw-output '[.[].addr_info[]? | select(.family == "inet" and .scope == "global").local][0] // empty'; }

# Prints the netdevs of a pod except lo and the management netdev, in their order.
rail_netdevs_of() { ip -n "$1" -json link show | jq --raw-output '.[].ifname | select(. != "lo" and . != "eth0")' | sort -V; }

# parent_of POD NETDEV: prints the node's netdev that is the parent of a child in a pod.
parent_of() {
  local index
  index=$(ip -n "$1" -json link show "$2" | jq '.[0].link_index')
  ip -json link show | jq --raw-output --argjson index "$index" '.[] | select(.ifindex == $index).ifname'
}

# assert_policy_routing POD NETDEV TABLE GATEWAY: packets from the netdev's address use its own table.
assert_policy_routing() {
  local address
  address=$(address_of "$1" "$2")
  assert_equal "rule of $2 in $1" "$3" "$(ip -n "$1" -json rule show | jq --raw-output --arg address "$address" '[.[] | select(.src == $address).table] | join(" ")')"
  assert_equal "default route of table $3 in $1" "$4 $2" \
    "$(ip -n "$1" -json route show table "$3" | jq --raw-output '[.[] | select(.dst == "default") | "\(.gateway) \(.dev)"] | join(" ")')"
}

# gid_indices POD FIRST_HCA COUNT: prints the index of the address of each rail of a pod, in one line.
gid_indices() {
  local number indices=()
  for ((number = 0; number < $3; number++)); do
    indices+=("$(gid_index_of "rxe$(($2 + number))" "$(address_of "$1" "net$((number + 1))")")")
  done
  echo "${indices[*]}"
}
# Prints the number of different words in a line.
different() { tr ' ' '\n' | sort -u | grep -c .; }

# bookings: prints the files of the ledger that book something. Views, states for --probe, locks, counters and refusals book nothing.
bookings() {
  find "$ledger" \( -path "$ledger/views" -o -path "$ledger/state" \) -prune -o -type f \
    ! -name lock ! -name links ! -name "metrics*" ! -name "refusals*" -print 2> /dev/null | sort
}

# node_state: prints the state that must be unchanged when all containers are gone. It leaves out counters of the kernel, and views,
# which stay for the next container with the same HCAs until `rdma-hook recover`.
node_state() {
  # A list of each kind behind its name, all for one jq, which takes long to start.
  {
    echo '"links"' && ip -json -details link show
    echo '"addresses"' && ip -json addr show
    echo '"routes"' && ip -json -4 route show table all && ip -json -6 route show table all
    echo '"rules"' && ip -json rule show
    echo '"namespaces"' && ip -json netns list
    echo '"rdma links"' && rdma --json link show
  } | jq --compact-output --sort-keys --null-input '
    def tidy: walk(if type == "object" then
      with_entries(select(.key | test("^(ifindex|link_index|netdev_index|stats.*|.*timer|parentdev|fdb_n_learned)$") | not)) else . end);
    foreach inputs as $read (null; if $read | type == "string" then $read else . end; . as $list | $read |
      if type == "string" then .
      elif $list == "addresses" then sort_by(.ifname)[] | {ifname, addr_info: ((.addr_info // []) | sort_by(.local))} | tidy
      elif $list == "routes" then sort_by(tostring)[] | tidy
      elif $list == "rules" then .[]
      elif $list == "namespaces" then sort_by(.name)[].name
      else sort_by(.ifname)[] | tidy end)'
  echo "GIDs" && grep -rv '^0000:0000:0000:0000:0000:0000:0000:0000$' /sys/class/infiniband/*/ports/1/gids | sort -V
  echo "mounts of rdma-hook" && awk '/rdma-hook/ { print $5 }' /proc/self/mountinfo
  echo "ledger" && bookings
}

# assert_node_as_before FILE: FILE has the earlier node_state. Namespaces end in the background, so that this waits for a while.
assert_node_as_before() {
  local end=$((SECONDS + 90))
  until node_state > "$1.now" && cmp --quiet "$1" "$1.now"; do
    if [ "$SECONDS" -ge "$end" ]; then
      diff --unified=0 "$1" "$1.now" || true
      fail "the node has changed: the lines above differ (- before, + now)"
    fi
    sleep 1
  done
  echo "ok: the node is as it was: $(wc -l < "$1") lines of links, addresses, routes, rules, RDMA links, GIDs and ledger"
}

# The NICs of a machine with `# nics: igb`: netdevs of the physical functions, in PCI order. Loads their driver.
load_nics() {
  modprobe -a igb igbvf
  local function
  nics=()
  for function in /sys/bus/pci/drivers/igb/0000:*; do
    nics+=("$(basename "$function"/net/*)")
    ip link set "${nics[-1]}" up
  done
  [ "${#nics[@]}" = 2 ] || fail "expected two NICs, found: ${nics[*]}"
}

# make_vfs PF COUNT: makes virtual functions. vf_netdev PF NUMBER prints the netdev of one.
make_vfs() {
  echo "$2" > "/sys/class/net/$1/device/sriov_numvfs"
  wait_until "$1 has $2 VFs" 60 has_vf_netdevs "$1" "$2"
}
has_vf_netdevs() {
  local number
  for ((number = 0; number < $2; number++)); do
    [ -n "$(vf_netdev "$1" "$number")" ] || return 1
  done
}
vf_netdev() { ls "/sys/class/net/$1/device/virtfn$2/net" 2> /dev/null; }

# vf_setting PF NUMBER KEY: prints the setting that the physical function reports.
vf_setting() { ip -json -details link show "$1" | jq --raw-output --argjson number "$2" --arg key "$3" '.[0].vfinfo_list[] | select(.vf == $number) | .[$key] | tostring'; }

# Makes a pod of a cluster: namespace NAME with an eth0 of the CNI plugins `bridge` and `host-local`, called like by an engine. The bridge
# has the default route, and leads to other pods and to the node.
make_cni_pod() {
  ip netns add "$1"
  ip -n "$1" link set lo up
  call_cni ADD "$1" > /dev/null
}

# end_cni_pod NAME...: ends them like an engine, eth0 first.
end_cni_pod() {
  local pod
  for pod in "$@"; do
    call_cni DEL "$pod"
    ip netns delete "$pod"
  done
}

# call_cni COMMAND POD
call_cni() {
  local plugins=/usr/lib/cni
  [ -x "$plugins/bridge" ] || fail "the image has no containernetworking-plugins"
  CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 CNI_PATH=$plugins "$plugins/bridge" << 'CONFIGURATION'
{"cniVersion": "1.0.0", "name": "cluster", "type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}}
CONFIGURATION
}

# eth0_of POD: prints its link, addresses and routes in one line. Only its CNI plugin may change them.
eth0_of() {
  { ip -n "$1" -json -details addr show dev eth0 && ip -n "$1" -json route show dev eth0; } |
    jq --compact-output --slurp '[(.[0][0] | {ifindex, address, mtu, operstate, link_index, kind: .linkinfo.info_kind,
      addresses: [.addr_info[] | {local, prefixlen, scope}]}), .[1]]'
}
