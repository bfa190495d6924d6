#!/bin/sh
# Question: Which netdevs does libfabric's tcp provider use if FI_TCP_IFACE names a netdev that is not there?
# Memory said: none, so that fi_getinfo() fails or the job takes another provider.
# What is so: all of them. The variable counts only if its netdev exists; otherwise it is ignored without a message. A container in
#   which the rail has another name uses its eth0. lo is in the list in both cases.
# Versions: libfabric1 1.17.0-3 (Debian 12); the same with 2.1.0 (Debian 13).
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=findings/fetch
. "$(dirname "$0")/fetch"
need_root
fetch "$work" bookworm libfabric1=1.17.0-3 libfabric-bin=1.17.0-3 libibverbs1=44.0-2 librdmacm1=44.0-2 libnl-3-200=3.7.0-0.2+b1 \
  libnl-route-3-200=3.7.0-0.2+b1 libnuma1=2.0.16-1 libpsm2-2=11.2.185-2 libpsm-infinipath1=3.3+20.604758e7-6.2
ln -s libpsm_infinipath.so.1.16 "$work/usr/lib/libpsm1/libpsm_infinipath.so.1" # the package's postinst makes it

# domains NETDEV: the domains of the provider tcp in a network namespace with the netdevs lo, eth0 and rail0.
domains() {
  # shellcheck disable=SC2016 # variables of the inner shell
  unshare --net sh -c 'ip link set lo up && ip link add eth0 type veth peer name rail0
    ip address add 10.8.0.1/24 dev eth0 && ip address add 10.9.0.1/24 dev rail0 && ip link set eth0 up && ip link set rail0 up
    FI_TCP_IFACE=$2 LD_LIBRARY_PATH=$1/usr/lib/x86_64-linux-gnu:$1/lib/x86_64-linux-gnu:$1/usr/lib/libpsm1 "$1/usr/bin/fi_info" -p tcp' \
    sh "$work" "$1" 2>&1 | sed -n 's/^ *domain: //p' | sort -u | tr '\n' ' '
}
expect "FI_TCP_IFACE=rail0" "$(domains rail0)" "lo rail0 "
expect "FI_TCP_IFACE=rail1, which is absent" "$(domains rail1)" "eth0 lo rail0 "
