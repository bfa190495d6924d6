# shellcheck shell=bash
# The runtimes of three Debian releases that the image has below /opt/runtimes, by names like runc-1.1.15.

readonly runtimes=/opt/runtimes

# Every one of them, runc first, oldest first. (`versions` names containerd too.)
all_runtimes() { awk '$1 ~ /^c?run/ { print $1 "-" $2 }' "$runtimes/versions"; }

# runtimes_of RELEASE: the pair of one release; trixie's is the guest's own.
runtimes_of() { awk -v release="$1" '$1 ~ /^c?run/ && $3 == release { print $1 "-" $2 }' "$runtimes/versions"; }

# use_runtime NAME-VERSION [OPTION...]: what `runtime`, and so every function of container.sh, runs from now on. Its
# containers are kept apart from those of the others, whose state files differ. OPTION: e.g. --systemd-cgroup.
use_runtime() {
  runtime_name=$1
  shift
  runtime_command=("$runtimes/$runtime_name/${runtime_name%%-*}" --root "/run/lab/state/$runtime_name" "$@")
  [ -x "${runtime_command[0]}" ] || fail "the image has no runtime $runtime_name"
}

runtime_name=runc
runtime_command=(runc)
runtime() { "${runtime_command[@]}" "$@"; }

is_crun() { [ "${runtime_name%%-*}" = crun ]; }
