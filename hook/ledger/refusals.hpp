// The last refusals of containers, oldest first, for `rdma-hook devices --refused`: an engine with crun shows only
// `exit code: 1`, and syslog may be absent or full. A container of a pod has one entry, the newest: namespace, pod and
// container name identify it, because each attempt of the kubelet makes a new id. Containers without a pod have one
// entry for each id, and one for each reason and message, with the id of the newest: each `podman run` makes a new id.
// If the file is full, the group with the most entries loses its oldest one, so that a tenant that fails again and
// again does not remove the entries of other tenants. A namespace is a group. For containers without a pod, a reason is
// a group, because a message may quote their texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hook {

inline constexpr std::size_t kMostRefusals = 64;
inline constexpr std::size_t kLargestRefusals = std::size_t{64} << 10;  // bytes of the file

struct RefusedContainer {
  std::string id;  // empty: unknown
  // The members for the pod are empty for a container without a pod, and if the engine's configuration of the container
  // cannot be read.
  std::string pod_namespace = {};
  std::string pod = {};
  std::string name = {};  // the container's name in its pod; empty: the pod itself
  friend bool operator==(const RefusedContainer&, const RefusedContainer&) = default;
};

struct Refusal {
  std::uint64_t time = 0;  // seconds since 1970
  std::string stage;       // the label of the metrics, such as "createRuntime"
  RefusedContainer container;
  std::string reason;  // the label of the metrics, such as "busy"
  std::string message;
  std::string remedy;  // remedy of the refusal; may be empty
};

// Adds an entry. Texts are cut, and control characters replaced. Makes the ledger's directory if it is missing. Best
// effort: returns nothing, waits at most 50 ms for the lock, and drops the entry if the file cannot be written. A
// damaged file is replaced.
void note_refusal(const std::string& ledger_directory, Refusal refusal);

// Returns the entries, the newest first; none if there is no file. Takes no lock. Errors: the file
// or directory cannot be read; EBADMSG, the file is damaged.
Result<std::vector<Refusal>> read_refusals(const std::string& ledger_directory);

// Returns the entries with the new one, within the limits of entries and bytes. entries: the oldest first. Pure.
std::vector<Refusal> with_refusal(std::vector<Refusal> entries, Refusal refusal);

}  // namespace hook
