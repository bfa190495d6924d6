# The runtimes of three Debian releases, which the image has below /opt/runtimes, by names such as runc-1.1.15.

readonly runtimes=/opt/runtimes

# Prints the runtimes of the oldest and the newest release, runc first, oldest first; with --set RUNTIMES=all also trixie's, which behave
# as sid's. (`versions` also names containerd.)
tested_runtimes() {
  awk -v all="${RUNTIMES:-}" '$1 ~ /^c?run/ && (all == "all" || $3 != "trixie") { print $1 "-" $2 }' "$runtimes/versions"
}

# runtimes_of RELEASE: prints the two runtimes of one release; those of trixie are the guest's own.
runtimes_of() { awk -v release="$1" '$1 ~ /^c?run/ && $3 == release { print $1 "-" $2 }' "$runtimes/versions"; }

# use_runtime NAME-VERSION [OPTION...]: selects the program of `runtime`, and of every function of container.sh. Its containers are
# separate from the containers of other runtimes, whose state files differ. OPTION: for example --systemd-cgroup.
use_runtime() {
  runtime_name=$1
  shift
  runtime_command=("$runtimes/$runtime_name/${runtime_name%%-*}" --root "/run/lab/state/$runtime_name" "$@")
  [ -x "${runtime_command[0]}" ] || fail "the image has no runtime $runtime_name"
}

# Without use_runtime it is the guest's crun, which starts five times as fast as runc under emulation.
runtime_name=crun
runtime_command=(crun)
runtime() { "${runtime_command[@]}" "$@"; }

is_crun() { [ "${runtime_name%%-*}" = crun ]; }
