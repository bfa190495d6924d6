#!/bin/sh
# Question: Is the alias of a netdev, in which an administrator notes its cable, the same after the CNI plugin host-device has lent the
#   netdev to a container?
# Memory said: yes, DEL restores the netdev.
# What is so: ADD writes the netdev's name into the alias, for DEL to read it. DEL restores the name and leaves that text there. The
#   administrator's alias is lost at the first container. 1.9.1 deletes the alias in place of that.
# Versions: containernetworking-plugins 1.1.1+ds1-3+b5 (Debian 12); 1.9.1+ds1-1 (sid) as said.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm containernetworking-plugins=1.1.1+ds1-3+b5

# Two network namespaces of this script: the node's and the container's. They end with the script.
cat > "$work/inside" << 'INSIDE'
set -eu
ip link add uplink type veth peer name other
ip link set uplink alias "leaf 3 port 7"
unshare --net sleep 60 &
container=$!
while [ "$(readlink "/proc/$container/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
for command in ADD DEL; do
  echo '{"cniVersion":"1.0.0","name":"n","type":"host-device","device":"uplink"}' |
    CNI_COMMAND=$command CNI_CONTAINERID=c1 CNI_NETNS=/proc/$container/ns/net CNI_IFNAME=rail0 CNI_PATH=$1 "$1/host-device" > /dev/null
done
ip link show dev uplink | sed -n 's/^ *alias //p'
kill "$container"
INSIDE
expect "alias after ADD and DEL" "$(unshare --net sh "$work/inside" "$work/usr/lib/cni")" uplink
