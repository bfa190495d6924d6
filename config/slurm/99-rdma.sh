#!/bin/sh
# Hook of enroot, for /etc/enroot/hooks.d: adds the variables of NCCL, UCX and NVSHMEM for this container to its environment, because
# enroot and pyxis do not execute the image's ENTRYPOINT. It runs once per step and node, and sorts after 99-mellanox.sh: it sees the
# HCAs that 99-mellanox.sh leaves.
#
# A variable that the job, the image or the site has set keeps its value. Nothing is added if MELLANOX_VISIBLE_DEVICES is `void` or
# `none`: 99-mellanox.sh then hides no HCA. The container starts in any case, after a failure with a warning.
rdma_init=/usr/bin/rdma-init

# The hook's own environment is that of the job, and precedes the container's as in 99-mellanox.sh; the last line of the file counts.
devices=${MELLANOX_VISIBLE_DEVICES-}
if [ -z "${MELLANOX_VISIBLE_DEVICES+set}" ]; then
  devices=$(sed -n -e '/^MELLANOX_VISIBLE_DEVICES=/h' -e "\${x;s/^[^=]*=//p;}" "$ENROOT_ENVIRON")
fi
case $devices in void | none) exit 0 ;; esac

# It waits for nothing, so that no option of the image delays the start. An error has its own message and remedy.
if variables=$("$rdma_init" --rootfs "$ENROOT_ROOTFS" --environ "$ENROOT_ENVIRON" --wait 0 env --format dotenv); then
  # The line break before them ends a last line without one; enroot drops empty lines.
  [ -z "$variables" ] || printf '\n%s\n' "$variables" >> "$ENROOT_ENVIRON"
else
  echo "99-rdma.sh: warning: rdma-init failed, no RDMA variables are set in this container" >&2
fi
exit 0
