#!/bin/sh
# Question: Which value has a variable that both `podman run -e` and the CDI file of a device set?
# Memory said: the user's value, as it wins over the image's.
# What is so: the device's. Podman applies CDI files last and writes both values into config.json, and runc and crun pass on the last
#   one. So a value in a CDI file cannot be overridden on the command line, and there is no message. With two such devices the one that
#   is named last decides.
# Versions: podman 4.3.1+ds1-8+deb12u1+b3 (Debian 12); the same with 5.8.6 and Docker 28.5.2 (sid).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
# shellcheck source=findings/podman
. "$(dirname "$0")/podman"
fetch_podman

mkdir "$work/hooks.d"
cat > "$work/cdi/hca.json" << 'CDI'
{"cdiVersion": "0.5.0", "kind": "vendor.example/hca", "devices": [
  {"name": "0", "containerEdits": {"env": ["NCCL_IB_HCA=device0"]}},
  {"name": "1", "containerEdits": {"env": ["NCCL_IB_HCA=device1"]}}]}
CDI
# variable OPTION...: the value that counts.
variable() {
  spec_of "$@" | grep -o 'NCCL_IB_HCA=[a-z0-9]*' | tail -n 1
}
expect "-e" "$(variable -e NCCL_IB_HCA=user)" "NCCL_IB_HCA=user"
expect "-e and device 0" "$(variable -e NCCL_IB_HCA=user --device vendor.example/hca=0)" "NCCL_IB_HCA=device0"
expect "devices 0 and 1" "$(variable --device vendor.example/hca=0 --device vendor.example/hca=1)" "NCCL_IB_HCA=device1"
expect "devices 1 and 0" "$(variable --device vendor.example/hca=1 --device vendor.example/hca=0)" "NCCL_IB_HCA=device0"
