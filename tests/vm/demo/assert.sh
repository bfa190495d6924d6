# Functions of the tests of the images. Each test has a separate directory, `work`, with TMPDIR in it. A test that starts itself again,
# in other namespaces, passes it on as WORK.

# shellcheck source=tests/vm/guest/assert.sh
. "$(dirname "${BASH_SOURCE[0]}")/../guest/assert.sh"

skip() {
  echo "skipped: $*"
  exit 77
}

# assert_lines COUNT EXTENDED-REGEX FILE: exactly COUNT lines match.
assert_lines() {
  local count
  count=$(grep -Ec -- "$2" "$3" || true)
  [ "$count" = "$1" ] || fail "wanted $1 lines with \`$2\`, found $count"
  echo "ok: $1 x $2"
}

# own_machine COMMAND...: runs this test again, in namespaces where `traces` finds only its own effects.
own_machine() {
  [ -n "${WORK:-}" ] || WORK=$work exec unshare --mount --net --propagation private "$@"
  mount -t tmpfs tmpfs /run
}

needs_root() { [ "$(id -u)" = 0 ] || skip "not root: mounts and namespaces need root"; }

# needs PROGRAM PACKAGE
needs() { command -v "$1" > /dev/null || skip "$1 is not installed (Debian package $2)"; }

# Lists everything that a run can leave on the machine: mounts, named network namespaces, netdevs, cgroups, containers.
traces() {
  # Mounts and cgroups of other programs exist in these namespaces too: only names of the demo count.
  grep -E "rdma-init-demo|$work|/netns" /proc/self/mountinfo | cut -d ' ' -f 5 | sort
  find /sys/fs/cgroup -type d -name '*rdma-init-demo*' 2> /dev/null | sort
  ls /run/netns 2> /dev/null || true
  ip -oneline link | cut -d : -f 2 | grep -E 'net[1-8]|veth' || true
  runc list --quiet
  ls "$TMPDIR"
}

work=${WORK:-$(mktemp -d /tmp/rdma-init-test.XXXXXXXX)}
export TMPDIR=$work/tmp
mkdir -p "$TMPDIR"
