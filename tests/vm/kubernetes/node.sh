# shellcheck shell=bash disable=SC2154
# The node of the lab: a guest that boots, runs commands and reboots. The script that sources this file sets the variables of `boot_node`.

# Name of the node in guest/kubelet.service. The number selects its slice of the addresses with `node_index: NODE_NAME`.
readonly node=worker1

on_node() { "$here/on-node" <<< "set -e
$*"; }

# boot_node: the first boot makes the disk, which persists.
boot_node() {
  local command
  if [ ! -e "$out/disk.img" ]; then
    cp --sparse=always "$image/disk.img" "$out/disk.img"
    truncate --size 4G "$out/disk.img"
    resize2fs "$out/disk.img" > "$state/resize2fs.log" 2>&1 || fail "the disk: $(cat "$state/resize2fs.log")"
  fi
  rm -f "$out/booted"
  mapfile -t command < <("$here/qemu-command" --image "$image" --qemu "$qemu" --disk "$out/disk.img" --build "$build" --out "$out" \
    --kubernetes "$kubernetes" --kernel "$kernel")
  started qemu "${command[@]}"
  wait_until "the lab's program runs on the node" 600 node_booted
  echo "the node booted: kernel $(< "$out/booted")"
}
node_booted() {
  still_runs qemu
  [ -e "$out/booted" ] && on_node true > /dev/null 2>&1
}

# reboot_node: reboots like an administrator, with running pods.
reboot_node() {
  local qemu_pid
  qemu_pid=$(< "$state/qemu.pid")
  on_node 'sync; systemd-run --no-block sh -c "sleep 1; systemctl reboot --force"' > /dev/null
  wait_until "the node is down" 300 has_ended "$qemu_pid"
  cp "$out/console.log" "$out/console-$(date +%s).log"
  boot_node
}
has_ended() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }

node_is_ready() { [ "$(kubectl get node "$node" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2> /dev/null)" = True ]; }

containerd_answers() { on_node '/opt/runtimes/containerd-1.7.24/ctr version' > /dev/null 2>&1; }

# import_image FILE: imports an archive of an image, below $out, for the kubelet.
import_image() {
  local started=$SECONDS
  on_node "/opt/runtimes/containerd-1.7.24/ctr -n k8s.io images import '/run/lab/out/$1'" > "$state/import.log" || {
    cat "$state/import.log"
    fail "cannot import $1"
  }
  echo "imported $1 in $((SECONDS - started)) s"
}
