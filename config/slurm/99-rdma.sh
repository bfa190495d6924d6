#!/bin/sh
# Hook of enroot, for /etc/enroot/hooks.d: adds the variables of NCCL, UCX and NVSHMEM for this container to its environment, because
# enroot and pyxis do not execute the image's ENTRYPOINT. It runs once per step and node, and sorts after 99-mellanox.sh: it sees the
# HCAs that 99-mellanox.sh leaves.
#
# A variable that the job, the image or the site has set keeps its value. An ENTRYPOINT sees only the container's variables, so the
# job's values of the libraries, and its RDMA_INIT_*, are added too. With MELLANOX_VISIBLE_DEVICES `void` or `none` nothing else is
# added: 99-mellanox.sh then hides no HCA. The container starts after a failure, with a warning, but not if RDMA_INIT_REQUIRE,
# _REQUIRE_USED or _STRICT refuses it. pyxis shows the messages only then, so the container gets the warnings as RDMA_INIT_NOTE.
rdma_init=/usr/bin/rdma-init

# The hook's own environment is that of the job, and precedes the container's as in 99-mellanox.sh; the last line of the file counts.
devices=${MELLANOX_VISIBLE_DEVICES-}
if [ -z "${MELLANOX_VISIBLE_DEVICES+set}" ]; then
  devices=$(sed -n -e '/^MELLANOX_VISIBLE_DEVICES=/h' -e "\${x;s/^[^=]*=//p;}" "$ENROOT_ENVIRON")
fi
# It waits for nothing, so that no option of the image delays the start. An error has its own message and remedy.
set -- --rootfs "$ENROOT_ROOTFS" --environ "$ENROOT_ENVIRON" --wait 0
is_used=1
case $devices in void | none) is_used='' && set -- "$@" --export none --require 0 --require-used 0 --log quiet ;; esac
variables=$("$rdma_init" "$@" env --format dotenv)
code=$?
if [ "$code" = 78 ] && [ -n "$is_used" ]; then exit 1; fi
if [ "$code" != 0 ] && [ -n "$is_used" ]; then
  variables="RDMA_INIT_NOTE=rdma-init failed in 99-rdma.sh, no RDMA variables are set in this container"
  echo "99-rdma.sh: warning: ${variables#*=}" >&2
fi
# The line break before them ends a last line without one; enroot drops empty lines.
[ -z "$variables" ] || printf '\n%s\n' "$variables" >> "$ENROOT_ENVIRON"
exit 0
