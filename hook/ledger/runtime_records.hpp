// Which runtime made a container: the configuration may name another one by the time that the container is killed. The
// targets of symbolic links, so that a look is one system call.
//
//   DIR/runtime/settings -> ENGINE RUNTIME                    the last configuration that could be read
//   DIR/runtime/containers/KEY -> PID.START RUNTIME\nWITNESS  who made this container
//   DIR/runtime/ending/KEY                                    a hard link: it may be gone soon
//
// KEY is that of container_owner() with the runtime's root in place of the bundle. Below the ledger, but without its
// locks: a record belongs to no grant.
#pragma once

#include <optional>
#include <string>

#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct RuntimeRecord {
  std::string runtime;      // absolute path
  ProcessIdentity creator;  // that becomes the runtime of `create`
  std::string witness;      // absolute path of what is there as long as the container is; empty: nothing is known
};
// Error EEXIST: another runtime has a container of this key, which is not proven to be gone. Others: the ledger's.
Result<void> remember_runtime(const std::string& ledger, const std::string& key, const RuntimeRecord& record);
// nullopt: none is known. What is closed to this user has no records of it.
Result<std::optional<RuntimeRecord>> recall_runtime(const std::string& ledger, const std::string& key);
void forget_runtime(const std::string& ledger, const std::string& key);

// The container may be gone soon: sweep_runtimes() will look. No record: nothing.
void mark_ending(const std::string& ledger, const std::string& key);
enum class SweptRuntimes { kEnding, kAll };
// Forgets those of them whose creator and witness are proven to be gone. Best effort, and nothing while another process
// does it.
void sweep_runtimes(const std::string& ledger, SweptRuntimes which);

struct RuntimeChoice {
  std::optional<Engine> engine;
  std::string runtime;  // absolute path
  friend bool operator==(const RuntimeChoice&, const RuntimeChoice&) = default;
};
// Writes only what is not there already.
Result<void> keep_choice(const std::string& ledger, const RuntimeChoice& choice);
Result<std::optional<RuntimeChoice>> last_choice(const std::string& ledger);

}  // namespace hook
