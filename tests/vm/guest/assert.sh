# Output of a case: steps, failures, and features that this kernel lacks.

fail() {
  echo "FAILED: $*"
  exit 1
}

not_possible_here() {
  echo "NOT POSSIBLE HERE: $*"
  exit 77
}

step() { echo "--- $*"; }

# assert_equal WHAT WANTED GOT
assert_equal() {
  [ "$2" = "$3" ] || fail "$1: wanted \`$2\`, got \`$3\`"
  echo "ok: $1: $3"
}

# assert_contains WHAT FILE EXTENDED_REGEX
assert_contains() {
  if ! grep -Eq -- "$3" "$2"; then
    echo "--- $2"
    cat "$2"
    fail "$1: nothing in $2 matches \`$3\`"
  fi
  echo "ok: $1: $(grep -E -m 1 -- "$3" "$2")"
}

# unwrapped FILE: prints a report of `rdma-init doctor` with each message on one line.
unwrapped() { sed -z 's/\n \{6,\}/ /g' "$1"; }

# assert_greater WHAT GOT LIMIT
assert_greater() {
  [ "$2" -gt "$3" ] || fail "$1: wanted more than $3, got $2"
  echo "ok: $1: $2 > $3"
}

# wait_until WHAT SECONDS COMMAND...: polls. The limit ends a hang; it is no measure of speed. SECONDS is enough on an idle machine; on
# one with other work five times of it.
wait_until() {
  local what=$1 limit=$(($2 * 5)) end
  shift 2
  end=$((SECONDS + limit))
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "$what: not within $limit s"
    sleep 0.2
  done
}
