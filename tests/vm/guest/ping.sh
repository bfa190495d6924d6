# Ranks of a job with rdma-ping. Each rank is a network namespace, as on a node of its own. For the RDMA subsystem in exclusive mode: a
# namespace has only its own HCAs there, and is made quickly.

# make_fabric RANKS RAILS: makes namespaces r0, r1, ... Rank R has eth0 at 10.99.0.(R+1). For each rail K it has netdev railK at
# 10.1.K.(R+1) with HCA rxeR-K, and bridge railK of the first namespace is the switch, whose port to the rank is rRpK. The HCAs have an
# MTU of 4096.
make_fabric() {
  local ranks=$1 rails=$2 rank rail
  fabric_ranks=$ranks
  # All namespaces share one table of neighbours, whose limit is that of the first namespace.
  sysctl -q -w net.ipv4.neigh.default.gc_thresh3=65536 net.ipv4.neigh.default.gc_thresh2=65536 net.ipv4.neigh.default.gc_thresh1=65536
  links_of_fabric "$ranks" "$rails" | ip -batch -
  for ((rank = 0; rank < ranks; rank++)); do
    addresses_of_rank "$rank" "$rails" | ip -n "r$rank" -batch -
    for ((rail = 0; rail < rails; rail++)); do
      echo "link add rxe$rank-$rail type rxe netdev rail$rail"
    done | in_pod "r$rank" rdma --batch -
  done
  # A new soft RoCE device is in the first namespace, also if it was made in another one.
  for ((rank = 0; rank < ranks; rank++)); do
    for ((rail = 0; rail < rails; rail++)); do
      echo "dev set rxe$rank-$rail netns r$rank"
    done
  done | rdma --batch -
  for ((rank = 0; rank < ranks; rank++)); do
    wait_until "the rails of rank $rank are ready" 60 rails_are_ready "$rank" "$rails"
  done
}

# Prints commands of ip for the first namespace: one process runs them all, since to start a program is slow in an emulated CPU.
links_of_fabric() {
  local rank rail mtu="mtu 4200"
  echo "link add $management_bridge up address 02:00:00:00:63:fe type bridge"
  echo "addr add 10.99.0.254/24 dev $management_bridge"
  for ((rail = 0; rail < $2; rail++)); do
    echo "link add rail$rail $mtu up type bridge"
  done
  for ((rank = 0; rank < $1; rank++)); do
    echo "netns add r$rank"
    echo "link add mgmt$rank up master $management_bridge type veth peer name eth0 netns r$rank"
    for ((rail = 0; rail < $2; rail++)); do
      echo "link add r${rank}p$rail $mtu up master rail$rail type veth peer name rail$rail $mtu netns r$rank"
    done
  done
}

addresses_of_rank() {
  local rail
  echo "link set lo up"
  echo "link set eth0 up"
  echo "addr add 10.99.0.$(($1 + 1))/24 dev eth0"
  echo "route add default via 10.99.0.254"
  for ((rail = 0; rail < $2; rail++)); do
    echo "link set rail$rail up"
    echo "addr add 10.1.$rail.$(($1 + 1))/24 dev rail$rail"
  done
}

# rails_are_ready RANK RAILS: its ports are active and have the GIDs of their IPv4 addresses. The kernel adds GIDs in the background.
rails_are_ready() {
  # shellcheck disable=SC2016 # the inner shell expands it
  ip netns exec "r$1" bash -c '
    cd /sys/class/infiniband
    for rail in $(seq 0 $(($2 - 1))); do
      port=rxe$1-$rail/ports/1
      [[ $(< "$port/state") == "4: ACTIVE" && $(< "$port/gids/1") != 0000:0000:0000:0000:0000:0000:* ]] || exit 1
    done' rails_are_ready "$@"
}

on_rank() {
  local rank=$1
  shift
  ip netns exec "r$rank" "$@"
}

# start_on NODE NAME COMMAND...: runs COMMAND in the namespace of rank NODE in the background, as container NAME: output_of has its
# messages, report_of its standard output, and wait_for_end its exit code. The time limit only ends a hang.
start_on() {
  rm -rf "${containers:?}/$2"
  mkdir -p "$containers/$2"
  record_end "$2" run_on "$@" &
}
run_on() {
  local node=$1 name=$2
  shift 2
  # Each node has its own host name, because reports show it.
  # shellcheck disable=SC2016 # the inner shell expands it
  local named=(unshare --uts bash -c 'echo "$0" > /proc/sys/kernel/hostname; exec "$@"' "node$node")
  PATH=/run/lab/bin:$PATH on_rank "$node" "${named[@]}" timeout --kill-after=5 "$longest_run" "$@" > "$(report_of "$name")"
}
longest_run=150
report_of() { echo "$containers/$1/report"; }

# start_rank RANK COMMAND...: the same as container rankRANK, with the variables of PyTorch.
start_rank() {
  local rank=$1
  shift
  start_on "$rank" "rank$rank" env RANK="$rank" WORLD_SIZE="$fabric_ranks" MASTER_ADDR=10.99.0.1 "$@"
}

# start_ranks COMMAND...: starts COMMAND on all ranks. If with[RANK] is set, it names a function that is called instead of start_rank.
declare -A with=()
start_ranks() {
  local rank
  rm -rf "$containers"/rank*
  ranks_started=$SECONDS
  for ((rank = 0; rank < fabric_ranks; rank++)); do
    "${with[$rank]:-start_rank}" "$rank" "$@"
  done
}

# wait_for_ranks: waits for the end of all started ranks. Sets codes, the exit codes in the order of the ranks, `-` for a rank that was not
# started, and taken, the seconds since start_ranks.
wait_for_ranks() {
  local rank list=()
  for ((rank = 0; rank < fabric_ranks; rank++)); do
    exit_code=-
    [ ! -d "$containers/rank$rank" ] || wait_for_end "rank$rank" $((longest_run + 60))
    list+=("$exit_code")
  done
  codes=${list[*]}
  taken=$((SECONDS - ranks_started))
}

run_ranks() {
  start_ranks "$@"
  wait_for_ranks
  sed -e 's/^/[rank 0] /' "$(output_of rank0)"
}

# assert_codes WANTED: the exit codes of all ranks.
assert_codes() {
  [ "$codes" = "$1" ] || show_ranks
  assert_equal "exit codes" "$1" "$codes"
}
show_ranks() { tail --verbose --lines=20 "$containers"/rank*/{output,report}; }

# assert_cause WHAT FILTER: a cause in the report of rank 0 passes the filter of jq. Prints its message.
assert_cause() { assert_report "$1" "any(.causes[]; $2)" "first(.causes[] | select($2)).message"; }

# assert_report WHAT FILTER [SHOWN]: the report of rank 0 passes the filter of jq.
assert_report() {
  local report
  report=$(report_of rank0)
  if ! jq --exit-status "$2" "$report" > /dev/null; then
    show_ranks
    fail "$1: the report of rank 0 does not pass $2"
  fi
  echo "ok: $1: $(jq --compact-output --raw-output "${3:-$2}" "$report")"
}

# assert_within SECONDS: the tests took at most so long by the clock of rank 0, and without tests all ranks ended so soon.
assert_within() {
  assert_report "seconds of the tests" ".seconds <= $1" .seconds
  jq --exit-status '.seconds > 0' "$(report_of rank0)" > /dev/null || assert_greater "seconds of $1 that are left" $(($1 - taken)) 0
}

# Prints the packets that an HCA of a rank has sent. sent_packets RANK RAIL
sent_packets() { on_rank "$1" cat "/sys/class/infiniband/rxe$1-$2/ports/1/hw_counters/sent_pkts"; }

# signal_rank RANK SIGNAL: sends it to rdma-ping on the rank. On rank 0 that is two processes, of which one ends with the other.
signal_rank() {
  local process
  for process in $(ip netns pids "r$1"); do
    [ "$(< "/proc/$process/comm")" != rdma-ping ] || kill "-$2" "$process" 2> /dev/null || true
  done
}
