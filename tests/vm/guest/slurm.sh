# Slurm of a release of Debian in one guest: munge and slurmctld in the first namespace, and two nodes, each a slurmd in the namespace of a
# rank of make_fabric, with one HCA. 24.11 is the guest's own; 22.05 and 26.05 are below /opt and have the guest's /etc, /run and devices
# there.

readonly slurm_home=/run/lab/slurm
readonly slurm_user=1000
readonly slurm_nodes=(node-a node-b)
# The project's files for Slurm.
readonly slurm_samples=/run/lab/out/in/config/slurm

# start_slurm RELEASE [LINE...]: starts all daemons with these lines in slurm.conf, after make_fabric 2 1. The logs are in $slurm_home.
start_slurm() {
  local release=$1
  shift
  in_slurm=()
  slurm_root=
  if [ "$release" != 24.11 ]; then
    slurm_root=/opt/slurm-$release
    [ -x "$slurm_root/usr/sbin/slurmd" ] || fail "the image has no Slurm $release"
    # pivot_root, because a process in a chroot cannot make a user namespace, as enroot does.
    # shellcheck disable=SC2016 # the inner shell expands it
    in_slurm=(unshare --mount bash -c 'mount --rbind "$0" "$0" && cd "$0" && for i in dev etc proc run sys tmp; do
      mount --rbind "/$i" "$i"; done && pivot_root . . && umount --lazy . && exec "$@"' "$slurm_root")
  fi
  # The path that the project's files have.
  cp /run/lab/bin/rdma-{init,hook} "$slurm_root/usr/bin/"
  write_slurm_conf "$@"
  start_munge
  start_slurmctld
  start_slurmd 0
  start_slurmd 1
  wait_until "both nodes are idle" 120 nodes_are IDLE
}

write_slurm_conf() {
  # Slurm 22.05 expects the slice of systemd.
  mkdir -p "$slurm_home"/{state,node-a,node-b} /etc/slurm /sys/fs/cgroup/system.slice
  add_user
  echo head > /proc/sys/kernel/hostname
  printf '%s\n' '127.0.0.1 localhost' '10.99.0.1 node-a' '10.99.0.2 node-b' '10.99.0.254 head' > /etc/hosts
  # A name without an address takes 10 s: the guest has no name server, and Slurm asks ten times.
  sed -i -e "s/^hosts:.*/hosts: files/" /etc/nsswitch.conf
  # The emulated CPU is slow: long time limits, and the smallest plugins.
  cat > /etc/slurm/slurm.conf << END
ClusterName=lab
SlurmctldHost=head(10.99.0.254)
SlurmUser=root
MailProg=/bin/true
StateSaveLocation=$slurm_home/state
SlurmdSpoolDir=$slurm_home/%n
SlurmctldPidFile=$slurm_home/slurmctld.pid
SlurmdPidFile=$slurm_home/%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldTimeout=3600
SlurmdTimeout=3600
MessageTimeout=60
BatchStartTimeout=120
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=2,sched_interval=2
SlurmdParameters=config_overrides
PropagateResourceLimitsExcept=MEMLOCK
PlugStackConfig=/etc/slurm/plugstack.conf
$(defaults "$@" ProctrackType=proctrack/linuxproc TaskPlugin=task/none)
NodeName=node-a NodeAddr=10.99.0.1 CPUs=4 RealMemory=1000 ${slurm_node_words:-}
NodeName=node-b NodeAddr=10.99.0.2 CPUs=4 RealMemory=1000 ${slurm_node_words:-}
PartitionName=all Nodes=node-a,node-b Default=YES
END
  mkdir -p /etc/enroot/{hooks.d,environ.d,mounts.d}
  # Each line: source, target, type, options, dump, pass.
  printf '%s\n' /{proc,sys,dev,etc/hosts,etc/nsswitch.conf} | sed 's/.*/& & none rbind 0 -1/' > /etc/enroot/mounts.d/10-system.fstab
  cp /run/lab/out/in/slurm/enroot /run/lab/bin/
  echo "required /usr/local/lib/spank_pyxis.so" > /etc/slurm/plugstack.conf
  printf '%s\n' IgnoreSystemd=yes "${slurm_cgroup_lines[@]}" > /etc/slurm/cgroup.conf
}
# Adds the user of the jobs, unless the guest has it.
add_user() {
  grep -q "^[^:]*:x:$slurm_user:" /etc/passwd || echo "user:x:$slurm_user:$slurm_user::/tmp:/bin/bash" >> /etc/passwd
  grep -q "^[^:]*:x:$slurm_user:" /etc/group || echo "user:x:$slurm_user:" >> /etc/group
}
# Prints the lines NAME=VALUE, of each name only the first.
defaults() { printf '%s\n' "$@" | awk -F= '!seen[$1]++'; }
# Words of slurm.conf for each node, and lines of cgroup.conf.
slurm_node_words=""
slurm_cgroup_lines=()

start_munge() {
  mkdir -p /etc/munge /var/log/munge /var/lib/munge /run/munge
  [ -s /etc/munge/munge.key ] || (umask 077 && head -c 1024 /dev/urandom > /etc/munge/munge.key)
  # Its files belong to another user here, which it accepts only with --force.
  setpriv --pdeathsig KILL munged --foreground --force > "$slurm_home/munged.log" 2>&1 &
  munged_pid=$!
  wait_until "munged listens" 60 test -S /run/munge/munge.socket.2
}

start_slurmctld() {
  setpriv --pdeathsig KILL "${in_slurm[@]}" slurmctld -D -i > "$slurm_home/slurmctld.log" 2>&1 &
  slurmctld_pid=$!
  wait_until "slurmctld answers" 120 slurmctld_answers
}
slurmctld_answers() { slurm scontrol ping 2> /dev/null | grep -q "is UP"; }

# start_slurmd NUMBER [MEMLOCK]: MEMLOCK in KiB, otherwise unlimited.
start_slurmd() {
  local node=${slurm_nodes[$1]} limit=${2:-unlimited}
  # The /sys of the namespace has no cgroups.
  # shellcheck disable=SC2016 # the inner shell expands it
  setpriv --pdeathsig KILL ip netns exec "r$1" unshare --uts bash -c 'echo "$0" > /proc/sys/kernel/hostname
    mount -t cgroup2 cgroup2 /sys/fs/cgroup && ulimit -l "$1" && exec "${@:2}"' "$node" "$limit" "${in_slurm[@]}" slurmd -D -N "$node" >> "$slurm_home/$node.log" 2>&1 &
  slurmd_pids[$1]=$!
}
declare -a slurmd_pids=()

stop_slurmd() {
  kill "${slurmd_pids[$1]}"
  wait "${slurmd_pids[$1]}" || true
}
stop_slurm() {
  stop_slurmd 0
  stop_slurmd 1
  kill "$slurmctld_pid" "$munged_pid"
  wait "$slurmctld_pid" "$munged_pid" || true
}

# slurm PROGRAM...: runs a program of the release as root, as_user the same as a user, with the environment of the caller.
slurm() { "${in_slurm[@]}" "$@"; }
as_user() { HOME=/tmp slurm setpriv --reuid "$slurm_user" --regid "$slurm_user" --clear-groups "$@"; }

# make_image NAME [LINE...]: makes a root file system for enroot, with these lines in its /etc/environment. Its programs are the guest's.
# The nodes see only images that were made before start_slurm.
make_image() {
  local root=$slurm_home/images/$1 link
  mkdir -p "$root"/{usr,tmp,proc,sys,dev,etc,run/lab/bin}
  for link in bin lib lib64 sbin; do ln -s "usr/$link" "$root/$link"; done
  touch "$root"/etc/{hosts,nsswitch.conf}
  cp -r /etc/libibverbs.d "$root/etc/"
  mount --bind /usr "$root/usr"
  mount --bind /run/lab/bin "$root/run/lab/bin"
  printf '%s\n' PATH=/run/lab/bin:/usr/sbin:/usr/bin HOME=/tmp "${@:2}" > "$root/etc/environment"
  # A container of enroot belongs to its user. pyxis writes /etc/rc.local in it.
  chown "$slurm_user" "$root" "$root/etc"
}

# use_entrypoint NAME WORD...: the image has these words as its ENTRYPOINT: /etc/rc, as `enroot import` writes it.
# shellcheck disable=SC2016 # /etc/rc expands it
use_entrypoint() { echo '[ ! -s /etc/rc.local ] || . /etc/rc.local; exec '"${*:2}"' "$@"' > "$slurm_home/images/$1/etc/rc"; }

nodes_are() { ! slurm sinfo --noheader --Node --format %T | grep -qvix "$1"; }
state_of() { slurm sinfo --noheader --nodes "$1" --format %T; }
reason_of() { slurm scontrol show node "$1" | sed -n -e 's/^ *Reason=\(.*\) \[.*/\1/p'; }

# in_image NAME SCRIPT [OPTION...]: runs it as a step with a container on each node, with these options of srun. The output is in
# $slurm_home/output.
in_image() {
  local code=0
  as_user srun --nodes 2 "${@:3}" --container-image "$slurm_home/images/$1" sh -c "$2" > "$slurm_home/output" 2>&1 || code=$?
  [ "$code" = 0 ] || { cat "$slurm_home/output" && fail "exit code $code of srun"; }
}

# assert_on_nodes WHAT A B: the variables that `shown_by_step` printed on node-a and on node-b.
# shellcheck disable=SC2016 # the shell of the step expands it
readonly shown_by_step='echo "$SLURMD_NODENAME: $NCCL_IB_HCA $COLOUR"'
assert_on_nodes() {
  assert_equal "$1" "node-a: $2 node-b: $3" "$(grep '^node-' "$slurm_home/output" | sort | sed 's/ $//' | paste -sd ' ')"
}

# assert_container_steps: steps with containers of images `plain`, which has a variable COLOUR, and `own`, which has NCCL_IB_HCA.
assert_container_steps() {
  step "enroot and pyxis without the project's hook: the container's variable is put over the job's"
  COLOUR=job in_image plain "$shown_by_step"
  assert_on_nodes "a variable of the image" " image" " image"
  COLOUR=job in_image plain "$shown_by_step" --container-env=COLOUR
  assert_on_nodes "the same with --container-env" " job" " job"

  step "an unchanged image has the HCA that it sees"
  install -m 755 "$slurm_samples/99-rdma.sh" /etc/enroot/hooks.d/
  in_image plain "$shown_by_step"
  assert_on_nodes "NCCL_IB_HCA" "=rxe0-0:1 image" "=rxe1-0:1 image"

  step "the value of the job, of --container-env, of the image and of the site win"
  NCCL_IB_HCA='=job' in_image plain "$shown_by_step"
  assert_on_nodes "value of the job" "=job image" "=job image"
  NCCL_IB_HCA='=job' in_image own "$shown_by_step" --container-env=NCCL_IB_HCA
  assert_on_nodes "value of --container-env" "=job" "=job"
  in_image own "$shown_by_step"
  assert_on_nodes "value of the image" "=image" "=image"
  echo NCCL_IB_HCA==site > /etc/enroot/environ.d/50-site.env
  in_image plain "$shown_by_step"
  assert_on_nodes "value of the site" "=site image" "=site image"
  rm /etc/enroot/environ.d/50-site.env

  step "99-mellanox.sh hides no HCA with \`void\`, so nothing is added"
  MELLANOX_VISIBLE_DEVICES=void in_image plain "$shown_by_step"
  assert_on_nodes "NCCL_IB_HCA" " image" " image"
}

# assert_traffic: rdma-ping, and perftest over the variables of the containers.
# shellcheck disable=SC2016 # the shell of the step expands it
assert_traffic() {
  local packets
  packets=$(sent_packets 1 0)
  in_image plain 'rdma-ping -- echo trainer of $SLURM_PROCID'
  assert_contains "result" "$slurm_home/output" "^rdma-ping: good: 2 ranks, 1 rail"
  assert_contains "command after it" "$slurm_home/output" "^trainer of 1\$"
  assert_greater "packets of node-b" "$(sent_packets 1 0)" "$((packets + 15))"
  in_image plain 'if [ "$SLURM_PROCID" = 0 ]; then to=; else to=node-a && sleep 2; fi
    exec perftest-by-nccl-env ib_write_bw --size 65536 --iters 5 --tx-depth 5 $to'
  assert_contains "perftest" "$slurm_home/output" "^ 65536 +5 "
}
