#!/bin/sh
# Question: Which values does Prometheus' node exporter report of a node with a Mellanox HCA and soft RoCE (rxe) beside it?
# Memory said: the Mellanox HCA with all values, and of the other one the values that it has.
# What is so: nothing of either. rxe has no attributes `hca_type` and `board_id`, and the collector drops all HCAs if such a file of one
#   HCA is absent. The log has no error at its default level; only node_scrape_collector_success is 0. 1.11.1 reports both.
# Versions: prometheus-node-exporter 1.5.0-1+b6 (Debian 12); 1.11.1-3 (sid) as said.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm prometheus-node-exporter=1.5.0-1+b6

add_hca() {
  port=$work/sys/class/infiniband/$1/ports/1
  mkdir -p "$port/counters" "$port/hw_counters"
  echo 20.36.1010 > "$port/../../fw_ver"
  echo "4: ACTIVE" > "$port/state"
  echo "5: LinkUp" > "$port/phys_state"
  echo "400 Gb/sec (4X NDR)" > "$port/rate"
  echo 7 > "$port/counters/port_xmit_data"
}
# metrics: the number of HCAs with a state, and whether the collector succeeded, from an exporter in a network namespace of its own.
metrics() {
  # shellcheck disable=SC2016 # variables of the inner shell
  unshare --net sh -c 'ip link set lo up
    "$1/usr/bin/prometheus-node-exporter" --path.sysfs="$1/sys" --collector.disable-defaults --collector.infiniband \
      --web.listen-address=127.0.0.1:9100 2> "$1/log" &
    curl --silent --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:9100/metrics > "$1/metrics"
    kill $!' sh "$work"
  echo "$(grep -c '^node_infiniband_state_id' "$work/metrics") HCAs, success $(sed -n 's/^node_scrape_collector_success{.*} //p' "$work/metrics")"
}
add_hca mlx5_0
echo MT4129 > "$work/sys/class/infiniband/mlx5_0/hca_type"
echo MT_0000000838 > "$work/sys/class/infiniband/mlx5_0/board_id"
expect "mlx5_0" "$(metrics)" "1 HCAs, success 1"
add_hca rxe0
expect "mlx5_0 and rxe0" "$(metrics)" "0 HCAs, success 0"
expect "errors in the log" "$(grep -c level=error "$work/log" || true)" 0
