# dockerd, set up by `rdma-hook install`, and one image: the programs of the build on the guest's /usr.

readonly docker_home=/run/lab/docker
readonly docker_image=lab.local/workload

# start_docker: starts dockerd, set up by `rdma-hook install`. Containers have no network except the network of a case. Its log is
# $docker_home/log. start_plain_docker: starts dockerd before that setup.
start_docker() {
  prepare_docker
  install_engine docker runtime
  run_docker
}
start_plain_docker() {
  prepare_docker
  run_docker
}
prepare_docker() {
  command -v dockerd > /dev/null || fail "the image has no docker.io"
  mkdir -p "$docker_home" /etc/docker
  # CDI is off by default in this version, and it is the other way of these cases.
  echo '{"features": {"cdi": true}}' > /etc/docker/daemon.json
  install -D -m 755 /run/lab/bin/rdma-runtime /usr/local/bin/rdma-runtime
  install -D -m 755 "$hook" /usr/local/bin/rdma-hook
}
run_docker() {
  start_docker_containerd
  setpriv --pdeathsig KILL dockerd --containerd "$docker_home/containerd.sock" --bridge none --iptables=false --ip6tables=false \
    >> "$docker_home/log" 2>&1 &
  docker_pid=$!
  wait_until "dockerd answers" 180 docker_answers
  ! docker_ended || { cat "$docker_home/log" && fail "dockerd does not run"; }
  make_docker_image
}
# A separate containerd, as on a node where it is a service: dockerd gives up its own containerd after 15 s.
start_docker_containerd() {
  echo 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' > "$docker_home/containerd.toml"
  setpriv --pdeathsig KILL containerd --config "$docker_home/containerd.toml" --address "$docker_home/containerd.sock" \
    --root "$docker_home/containerd" --state /run/docker/containerd >> "$docker_home/containerd.log" 2>&1 &
  docker_containerd_pid=$!
  wait_until "Docker's containerd answers" 180 docker_containerd_answers
}
docker_containerd_answers() { ctr --address "$docker_home/containerd.sock" version > /dev/null 2>&1; }
docker_ended() { ! kill -0 "$docker_pid" 2> /dev/null; }
docker_answers() { docker_ended || docker version > "$docker_home/version" 2>&1; }
stop_docker() {
  kill -TERM "$docker_pid"
  wait "$docker_pid" || true
  kill -TERM "$docker_containerd_pid"
  wait "$docker_containerd_pid" || true
}

# An image with rdma-init as entrypoint and a root of links into /usr, which containers mount.
make_docker_image() {
  local root=$docker_home/root link
  mkdir -p "$root"/{usr,tmp,proc,sys,dev,run/lab/bin,var/tmp}
  for link in bin lib lib64 sbin; do ln -s "usr/$link" "$root/$link"; done
  cp --archive /etc "$root/etc"
  tar --create --directory "$root" . | docker import --change 'ENTRYPOINT ["rdma-init", "--"]' \
    --change 'ENV PATH=/run/lab/bin:/usr/sbin:/usr/bin' --change 'ENV HOME=/tmp' - "$docker_image" > /dev/null
}

# make_docker_pod NAME: starts a container that only waits, in a network namespace that other containers join; then `make_pod NAME`.
make_docker_pod() {
  docker run --detach --name "pause-$1" --network none --volume /usr:/usr:ro --entrypoint sleep "$docker_image" infinity > /dev/null
  ip netns attach "$1" "$(docker inspect --format '{{.State.Pid}}' "pause-$1")"
}
end_docker_pod() {
  ip netns delete "$1"
  docker rm --force "pause-$1" > /dev/null
}

# start_docker_container NAME POD COMMAND...: in the background, like `start_container`. DOCKER_OPTIONS (an array) are options of
# `docker run`. Without a POD (`-`) it has its own network namespace.
start_docker_container() {
  local name=$1 network=container:pause-$2
  [ "$2" != - ] || network=none
  shift 2
  mkdir -p "$containers/$name"
  record_end "$name" docker run --rm --name "$name" --network "$network" --volume /usr:/usr:ro --volume /run/lab/bin:/run/lab/bin:ro \
    "${DOCKER_OPTIONS[@]}" "$docker_image" "$@" &
}
