# Compares the ways by which a container of an engine gets its HCAs: the same containers and the same assertions for each way.

# install_engine ENGINE WAY: `rdma-hook install`, which must undo everything, and change nothing when it is called again.
install_engine() {
  local before installed
  before=$(engine_files)
  install_it "$@"
  installed=$(engine_files)
  install_it "$@"
  assert_equal "what installing twice changes" "" "$(diff <(echo "$installed") <(engine_files) || true)"
  /usr/local/bin/rdma-hook install --uninstall
  assert_equal "what uninstalling leaves" "" "$(diff <(echo "$before") <(engine_files) || true)"
  install_it "$@"
}
install_it() { /usr/local/bin/rdma-hook install --engine "$1" --way "$2"; }
engine_files() { find /etc /usr/share/containers -type f -exec sha256sum {} + | sort -k 2; }

# use_way ENGINE WAY: sets the way of start_in_engine. WAY: createRuntime (hooks.d files), rdma-runtime, cdi.
# WAY of containerd: nri, rdma-runtime, base-spec, cdi; sets `handler`, the runtime handler of pods, which request by cri_asks_for.
use_way() {
  engine=$1 way=$2
  PODMAN_RUNTIME="" cri_asks=annotations
  rm -f /var/run/cdi/rdma-init.json
  # containerd calls rdma-nri for the pods of all handlers.
  if [ -n "$nri_runs" ]; then end_nri; fi
  nri_runs=""
  install -D -m 755 "$hook" /usr/local/bin/rdma-hook
  [ "$engine" != podman ] || /usr/local/bin/rdma-hook install --uninstall
  case $engine-$way in
    *-cdi)
      mkdir -p /var/run/cdi && /usr/local/bin/rdma-hook cdi generate --engine "$engine" --out /var/run/cdi/rdma-init.json
      cri_asks=cdi handler=plain
      ;;
    podman-createRuntime) install_engine podman hook ;;
    podman-rdma-runtime)
      PODMAN_RUNTIME=rdma
      install -m 755 /run/lab/bin/rdma-runtime /usr/local/bin/
      install_engine podman runtime
      ;;
    docker-rdma-runtime) ;;
    containerd-nri)
      handler="" nri_runs=yes
      start_nri
      ;;
    containerd-rdma-runtime) handler=rdma ;;
    containerd-base-spec) handler=rdma-hook ;;
    *) fail "no way $way for $engine" ;;
  esac
}
nri_runs=""

# ask_engine HCA [KEY=VALUE...]: containers now request this HCA (or `all`; without HCA: none) in the current way, with more annotations
# rdma-init.io/KEY. They also have the options of ENGINE_OPTIONS (an array).
ENGINE_OPTIONS=()
ask_engine() {
  local annotation
  asked=()
  [ "$engine-$way" != docker-rdma-runtime ] || asked+=(--runtime rdma)
  [ $# != 0 ] || return 0
  case $way in
    cdi) asked+=(--device "rdma-init.io/hca=$1") ;;
    *) asked+=(--annotation "rdma-init.io/devices=$1") ;;
  esac
  shift
  for annotation in "$@"; do asked+=(--annotation "rdma-init.io/$annotation"); done
}

# start_in_engine NAME POD COMMAND...: COMMAND follows the entrypoint `rdma-init --`.
start_in_engine() {
  case $engine in
    podman)
      PODMAN_OPTIONS=(--entrypoint '["rdma-init", "--"]' "${asked[@]}" "${ENGINE_OPTIONS[@]}")
      start_podman "$@"
      ;;
    docker)
      DOCKER_OPTIONS=("${asked[@]}" "${ENGINE_OPTIONS[@]}")
      start_docker_container "$@"
      ;;
  esac
}
run_in_engine() {
  start_in_engine "$@"
  wait_for_container "$1" 240
}
# exec_in_engine NAME COMMAND...
exec_in_engine() {
  case $engine in
    podman) in_podman exec "$@" ;;
    docker) docker exec "$@" ;;
  esac
}
# wait_for_line NAME LINE: waits until the container has printed it.
wait_for_line() {
  wait_until "$1 prints \`$2\`" 240 line_or_ended "$@"
  ! container_ended "$1" || { sed -e "s/^/[$1] /" "$(output_of "$1")" && fail "container $1 ended"; }
}
line_or_ended() { container_ended "$1" || grep -qsx "$2" "$(output_of "$1")"; }

# The scenes below use two_pods_behind_foreign_gids: pods a and b, HCAs rxe0 and rxe1.

# assert_moves_data: runs ib_write_bw between two containers, each with the HCA of its pod.
assert_moves_data() {
  local traffic=(perftest-by-nccl-env ib_write_bw -s 65536 -n 50 -F) received
  step "$engine, $way: data between two containers"
  received=$(counter rxe0 rcvd_pkts)
  ask_engine rxe0
  start_in_engine "server-$way" a "${traffic[@]}"
  wait_for_listener "server-$way" a 18515
  ask_engine rxe1
  start_in_engine "client-$way" b "${traffic[@]}" 10.99.0.1
  wait_for_success "client-$way" 240
  wait_for_success "server-$way" 120
  assert_contains "what rdma-init found in pod a" "$(output_of "server-$way")" "^by NCCL_IB_HCA==rxe0:1 NCCL_IB_GID_INDEX=$index_a\$"
  assert_contains "what rdma-init found in pod b" "$(output_of "client-$way")" "^by NCCL_IB_HCA==rxe1:1 NCCL_IB_GID_INDEX=$index_b\$"
  assert_contains "data moved" "$(output_of "client-$way")" '^ *65536 +50 '
  # A packet has at most 4096 bytes.
  assert_greater "packets that rxe0 took in" "$(($(counter rxe0 rcvd_pkts) - received))" $((50 * 16 - 1))
}

# assert_registers_memory: registers 1 GiB in a container with a user other than root. It has CAP_IPC_LOCK if the way can add it.
assert_registers_memory() {
  local user=1000:1000 only ENGINE_OPTIONS=("${ENGINE_OPTIONS[@]}" --user 1000:1000)
  step "$engine, $way: 1 GiB, as user $user"
  ask_engine rxe0
  run_in_engine "big-$way" a sh -c 'id -u; container-probe /dev/infiniband/uverbs*; exec verbs_trainer --rts-only --mr 1073741824'
  assert_equal "exit code" 0 "$exit_code"
  assert_contains "user" "$(output_of "big-$way")" "^${user%:*}\$"
  # Bit 14 is CAP_IPC_LOCK; the set has no other bit.
  [ "$(given capabilities)" = - ] && only=0 || only=4
  assert_contains "capabilities" "$(output_of "big-$way")" "^capabilities 000000000000${only}000\$"
  assert_contains "registered" "$(output_of "big-$way")" "^rxe0:1: gid $index_a .* 1073741824 bytes registered, RTS"
  assert_sees_only "$(output_of "big-$way")" rxe0
}

# assert_nothing_without_asking: the same engine, with a container that requests no HCA.
assert_nothing_without_asking() {
  step "$engine, $way: a container that requests no HCA"
  ask_engine
  run_in_engine "plain-$way" a container-probe "$(node_of rxe0)"
  assert_equal "exit code" 0 "$exit_code"
  assert_error "$(output_of "plain-$way")" "$(node_of rxe0)" ENOENT
}

# assert_no_second_holder PLACE: one pod has an HCA of an exclusive pool, and another pod is refused. PLACE has the name of the owner:
# `output`, which the engine shows to its user, or `syslog`. Then checks a session in the first container, and ends it.
assert_no_second_holder() {
  local said
  step "$engine, $way: an exclusive HCA of pod a is not granted to pod b"
  ask_engine rxe0
  start_in_engine "first-$way" a sh -c 'echo holds; exec sleep infinity'
  wait_for_line "first-$way" holds
  said=$(wc -l < "$syslog")
  run_in_engine "second-$way" b true
  [ "$exit_code" != 0 ] || fail "another pod got an exclusive HCA"
  case $1 in
    output) assert_contains "the engine shows who holds it" "$(output_of "second-$way")" 'rxe0.* is held by ' ;;
    syslog) wait_until "the log names its owner" 30 holder_is_said "$said" ;;
  esac
  assert_exec
  end_first_holder
}

# holder_is_said LINES: tests for the name of the owner after so many lines of the log.
holder_is_said() { tail -n "+$(($1 + 1))" "$syslog" | grep -E 'rxe0.* is held by '; }

# assert_exec: checks a session in the container of assert_no_second_holder.
assert_exec() {
  local probed=/run/lab/exec-$way
  step "$engine, $way: exec"
  exec_in_engine "first-$way" container-probe "$(node_of rxe0)" > "$probed"
  assert_given_to_exec "$probed"
}
# assert_given_to_exec OUTPUT: checks the output of container-probe in a session of a container that has rxe0.
assert_given_to_exec() {
  sed -e 's/^/[exec] /' "$1"
  assert_opens "$1" "$(node_of rxe0)" "$(numbers_of "$(node_of rxe0)")"
  assert_equal "locked memory in exec" "$(given exec-limits)" "$(limit_in "$1")"
  assert_equal "CAP_IPC_LOCK in exec" "$(given exec-capabilities)" "$(capability_in "$1")"
}

# end_first_holder: ends it; the HCA must still belong to its pod.
end_first_holder() {
  case $engine in
    podman) in_podman rm --force --time 0 "first-$way" > /dev/null ;;
    docker) docker rm --force "first-$way" > /dev/null ;;
  esac
  wait_for_end "first-$way" 60
  assert_equal "exit code of one that was killed" 137 "$exit_code"
  "$hook" devices --json > /run/lab/devices
  assert_equal "holders of rxe0" exclusive \
    "$(jq --raw-output '[.hcas[] | select(.name == "rxe0").holders[].mode] | join(" ")' /run/lab/devices)"
}

# rails_for_the_matrix: makes two HCAs that can be requested in every mode.
rails_for_the_matrix() {
  make_rails 2
  network_config rails "$(rails_network 2 1 '.gateway_test = "off"')" > /dev/null
}

# given COLUMN: prints what the current way can add, as in the table of docs/which-way.md.
given() {
  case $1-$way in
    capabilities-rdma-runtime | exec-capabilities-rdma-runtime) echo IPC_LOCK ;;
    exec-limits-rdma-runtime | exec-limits-nri | exec-limits-base-spec) echo yes ;;
    environment-rdma-runtime | environment-nri) echo yes ;;
    capabilities-* | exec-capabilities-* | exec-limits-* | environment-*) echo - ;;
    nodes-* | rules-* | limits-*) echo yes ;;
    *) fail "no column $1" ;;
  esac
}
# given_rails MODE: prints netdev and kind of the netdev that a container gets for an HCA of make_rails.
given_rails() {
  case $1 in
    hca) echo - ;;
    shared | shared-multi) echo net1,macvlan ;;
    exclusive) echo net1,veth ;;
  esac
}
# given_by_init MODE: prints the NCCL_IB_HCA that rdma-init exports; `-`: it starts the program without. The node has no address on the
# netdevs of make_rails, so that a container in mode hca has no usable address.
given_by_init() { if [ "$1" = hca ]; then echo -; else echo "=rxe0:1"; fi; }
given_environment() { if [ "$1" = hca ]; then echo -; else given environment; fi; }
# Reads the output of container-probe: whether locked memory is unlimited; IPC_LOCK (14) or -.
limit_in() { if grep -qx 'memlock unlimited unlimited' "$1"; then echo yes; else echo -; fi; }
capability_in() { if (((0x$(sed -n -e 's/^capabilities //p' "$1") >> 14) & 1)); then echo IPC_LOCK; else echo -; fi; }

# rails_in OUTPUT: prints the netdevs in it, as `ip` prints them, without netdevs that are no rail.
rails_in() {
  sed -n -e 's/^rails //p' "$1" | jq '.[] | select(.link_type == "ether" and .ifname != "eth0")'
}

# The command by which a container prints all that it got; it can make nodes (CAP_MKNOD). The HCA is rxe0, and rxe1 exists.
showing() {
  local other
  other=$(node_of rxe1)
  echo "container-probe $(node_of rxe0) /dev/infiniband/rdma_cm $other --foreign $(numbers_of "$other")
    echo rails \$(ip -json -details addr show); echo rules \$(ip -json rule show); env
    started=\$(rdma-init -- env); echo rdma-init \$?; echo \"\$started\" | sed -n -e 's/^NCCL_IB_HCA=/exported /p'"
}

# assert_gives ENGINE WAY MODE OUTPUT: compares the output of a container that requested rxe0 and ran `showing` with the abilities of
# this way, and adds a line to the file $matrix, to which all cases of a boot add. The common part of all ways must be identical in
# all containers of a mode.
readonly matrix=/run/lab/matrix
assert_gives() {
  local engine=$1 way=$2 mode=$3 output=$4 column facts=/run/lab/matrix-$3 row=("$1" "$2" "$3")
  local -A got
  got[nodes]=$(grep -Ec '^open /dev/infiniband/(uverbs[0-9]+|rdma_cm) [0-9:]+ 666 0:0 ok$' "$output" | sed -e 's/^2$/yes/')
  got[rules]=$(grep -Eq '^foreign [0-9:]+ EPERM$' "$output" && echo yes || echo -)
  got[limits]=$(limit_in "$output")
  got[capabilities]=$(capability_in "$output")
  got[rails]=$(rails_in "$output" | jq --raw-output --slurp 'map("\(.ifname),\(.linkinfo.info_kind)") | join(" ")')
  got[rails]=${got[rails]:--}
  got[environment]=$(grep -qx 'RDMA_INIT_REQUIRE=1' "$output" && echo yes || echo -)
  got[rdma-init]=$(sed -n -e 's/^rdma-init //p' "$output")
  [ "${got[rdma-init]}" != 0 ] || got[rdma-init]=$(sed -n -e 's/^exported //p' "$output")
  got[rdma-init]=${got[rdma-init]:--}
  for column in nodes rules limits capabilities; do
    assert_equal "$engine, $way, $mode: $column" "$(given "$column")" "${got[$column]}"
  done
  assert_equal "$engine, $way, $mode: environment" "$(given_environment "$mode")" "${got[environment]}"
  assert_equal "$engine, $way, $mode: rails" "$(given_rails "$mode")" "${got[rails]}"
  assert_equal "$engine, $way, $mode: rdma-init" "$(given_by_init "$mode")" "${got[rdma-init]}"
  assert_contains "$engine, $way, $mode: sysfs" "$output" '^sysfs infiniband rxe0$'
  {
    grep -E '^(open|foreign|sysfs|memlock) ' "$output"
    rails_in "$output" | jq --compact-output '{ifname, mtu, operstate, addresses: [.addr_info[]
      | select(.family == "inet") | {prefixlen, net: (.local | split(".")[:2])}]}'
    sed -n -e 's/^rules //p' "$output" | jq --compact-output '.[] | {priority, table}'
  } > "$facts.now"
  [ -e "$facts" ] || cp "$facts.now" "$facts"
  diff --unified=0 "$facts" "$facts.now" || fail "$engine, $way, $mode: the lines above differ from another way"
  [ -s "$matrix" ] || echo "engine way mode nodes rules limits capabilities rails environment rdma-init" > "$matrix"
  for column in nodes rules limits capabilities rails environment rdma-init; do row+=("${got[$column]}"); done
  echo "${row[*]}" >> "$matrix"
}
# show_matrix: also prints the common part of all containers of a mode.
show_matrix() {
  local mode columns row
  columns="%-11s %-14s %-13s %-6s %-6s %-7s %-13s %-13s %-12s %s\n"
  while read -r -a row; do
    # shellcheck disable=SC2059 # the columns are one format
    printf "$columns" "${row[@]}"
  done < "$matrix"
  for mode in hca shared shared-multi exclusive; do
    [ ! -e "/run/lab/matrix-$mode" ] || sed -e "s/^/[$mode] /" "/run/lab/matrix-$mode"
  done
}
