# Beside rdma-nri: a container that asked and has no grant does not start.
#
#     ctr oci spec | jq --from-file verify.jq > /etc/containerd/rdma-verify.json
#
# Without limits of its own, of which `ctr oci spec` has one of 1024 open files: rdma-nri adds that of locked memory.
del(.process.rlimits)
| .hooks.createRuntime += [{path: "/usr/local/bin/rdma-hook", args: ["rdma-hook", "verify", "--engine", "containerd"],
    env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], timeout: 60}]
