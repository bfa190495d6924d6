# NCCL's own network layer in containers: the programs nccl_net-VERSION of tests/nccl, if the build has them, and their output.

# nccl_versions: prints the versions of the build, oldest first.
nccl_versions() {
  find /run/lab/build/nccl -name 'nccl_net-*' 2> /dev/null | sed 's/.*nccl_net-//' | sort -V
}

# devices_of OUTPUT: prints NCCL's devices, as HCA:PORT,HCA:PORT.
devices_of() { sed -n 's/^device [0-9]* name=\([^ ]*\) port=\([0-9]*\) .*/\1:\2/p' "$1" | sort | paste -sd ,; }
# indices_of OUTPUT [HCA]: prints the different GID indices of NCCL's queue pairs.
indices_of() { sed -n "s/^qp ${2:-[^ ]*} RTR index=\([0-9]*\) .*/\1/p" "$1" | sort -u | paste -sd ' '; }
# moved_on OUTPUT: prints the numbers of NCCL's devices that received 1 MiB without a wrong byte.
moved_on() { sed -n 's/^moved \([0-9]*\) received bytes=1048576 wrong=0 .*/\1/p' "$1" | paste -sd ' '; }
