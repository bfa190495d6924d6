// Records which runtime made each container, because the configuration may name another runtime when the container is
// killed. Each record is the target of a symbolic link, so that a read is one system call.
//
//   DIR/runtime/settings -> ENGINE RUNTIME                    from the last configuration that could be read
//   DIR/runtime/containers/KEY -> PID.START RUNTIME\nPATH     the RuntimeRecord of this container
//   DIR/runtime/ending/KEY                                    a hard link: this container may be gone soon
//
// KEY is the key of container_owner(), with the runtime's root in place of the bundle. A record belongs to no grant,
// and none of the ledger's locks is needed.
#pragma once

#include <optional>
#include <string>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct RuntimeRecord {
  std::string runtime;         // absolute path of the runtime
  ProcessIdentity creator;     // the process of rdma-runtime that executes this runtime for `create` (execve(2))
  std::string container_path;  // absolute path that exists as long as the container does; empty: not known
};
// Records the runtime of a container. Errors: EEXIST, a container of this key is recorded with another runtime and is
// not proven gone; a directory or record cannot be read or written.
Result<void> remember_runtime(const std::string& ledger, const std::string& key, const RuntimeRecord& record);
// Returns the record of a container; nullopt: there is none, or this user may not read the ledger.
Result<std::optional<RuntimeRecord>> recall_runtime(const std::string& ledger, const std::string& key);
// Removes the record of a container. Best effort.
void forget_runtime(const std::string& ledger, const std::string& key);

// Marks the container for the next sweep_runtimes(), because it may be gone soon. Does nothing without a record.
void mark_ending(const std::string& ledger, const std::string& key);
enum class SweptRuntimes { kEnding, kAll };
// Removes the records of gone containers: all such records, or only those that mark_ending() marked. A container is
// gone if the process that created it and its container_path are both proven gone. A container without a
// known container_path never counts as gone. Best effort; does nothing while another process runs this function or
// replaces a record.
void sweep_runtimes(const std::string& ledger, SweptRuntimes which);

struct RuntimeChoice {
  std::optional<Engine> engine;
  std::string runtime;  // absolute path of the runtime
  friend bool operator==(const RuntimeChoice&, const RuntimeChoice&) = default;
};
// Records engine and runtime of the current configuration, if they differ from the recorded ones.
Result<void> keep_choice(const std::string& ledger, const RuntimeChoice& choice);
// Returns the recorded engine and runtime; nullopt: there is no record.
Result<std::optional<RuntimeChoice>> last_choice(const std::string& ledger);

}  // namespace hook
