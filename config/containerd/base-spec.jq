# What containers of the handler `rdma-hook` begin with:
#
#     ctr oci spec | jq --from-file base-spec.jq > /etc/containerd/rdma-hook.json
#
# The list of limits is a new one: that of `ctr oci spec` has 1024 open files, which containerd takes out of its own base only.
18446744073709551615 as $unlimited
| if ($unlimited | tojson) == "18446744073709551615" then . else
    error("this jq rounds 18446744073709551615, and containerd would not start: jq 1.7 or later does not") end
| .process.rlimits = [{type: "RLIMIT_MEMLOCK", soft: $unlimited, hard: $unlimited}]
| {path: "/usr/local/bin/rdma-hook", env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], timeout: 60} as $hook
| .hooks.createRuntime += [$hook + {args: ["rdma-hook", "createRuntime", "--engine", "containerd"]}]
| .hooks.poststop += [$hook + {args: ["rdma-hook", "poststop", "--engine", "containerd"]}]
