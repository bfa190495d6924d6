# Runs blocks of README.md and docs/ unchanged (tests/lint/docs/README.md). Programs that a reader's node has and the lab lacks, mainly
# `systemctl`, are functions of the case.

readonly documents=/run/lab/out/in
readonly reader=/run/lab/reader

# document_block NAME: prints the block that names this case and NAME.
document_block() {
  awk -v mark="<!-- test: lab $(basename "$case_file") $1 -->" '
    $0 == mark { found = 1; next }
    found && /^    / { sub(/^    /, ""); print; next }
    found && /^./ { exit }
    found { print }' "$documents/README.md" "$documents"/docs/*.md > /run/lab/block
  [ -s /run/lab/block ] || fail "no document has a block \`$1\` for this case"
  cat /run/lab/block
}

# run_block NAME [FROM=TO]: runs it in a directory with the programs of an unpacked release, and the folders config and images of the
# sources. Its output is then in $said.
run_block() {
  local commands
  step "block \`$1\`"
  said=$containers/block-$1/output
  mkdir -p "$reader" "${said%/*}"
  cp --recursive "$documents/config" "$documents/images" "$documents/images/training/Containerfile" "$reader"
  install -m 755 --target-directory "$reader" /run/lab/bin/rdma-init /run/lab/build/init/ping/rdma-ping
  install -D -m 755 --target-directory /usr/local/bin /run/lab/bin/rdma-{hook,runtime,nri}
  install -D -m 644 --target-directory /usr/local/lib/systemd/system "$documents"/config/systemd/*
  commands=$(document_block "$1")
  [ $# = 1 ] || commands=${commands//"${2%%=*}"/"${2#*=}"}
  tee /run/lab/commands <<< "$commands"
  cd "$reader" || return
  # shellcheck source=/dev/null
  PATH=/usr/local/bin:$PATH . /run/lab/commands > "$said" 2>&1
  cd /
  sed -e "s/^/[$1] /" "$said"
}

# make_readers_hca: makes rxe0 with 10.1.0.1.
make_readers_hca() {
  make_host_rail v0 rxe0
  ip addr add 10.1.0.1/24 dev v0
  wait_for_gid rxe0 10.1.0.1
}

# assert_is_fit FILE: checks the output of the image without a command.
assert_is_fit() { assert_contains "the container" "$1" '^rdma-init .*: fit for RDMA, but slow$'; }
