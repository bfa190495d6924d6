// Two files in the bundle of a container that rdma-runtime edited. rdma-runtime.json records the grant, for `exec`.
// rdma-runtime.config.json is the unedited config.json, for a bundle that is started again. An annotation would not be
// a safe place for these data: a user who may set the container's annotations could forge it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.hpp"
#include "base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {

// Limits and capabilities that each process of the container gets.
struct ProcessGrant {
  bool ipc_lock = false;                 // true: the process gets CAP_IPC_LOCK
  std::optional<std::uint64_t> memlock;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: unchanged
  friend bool operator==(const ProcessGrant&, const ProcessGrant&) = default;
};

ProcessGrant process_grant(const hook::Plan& plan);

// Adds the grant to the process file of `exec --process FILE`. Engines (`kubectl exec`, `docker exec`) write this file
// from their own copy of the specification, which lacks the edits of rdma-runtime. Pure. Returns true if the process
// was changed; false: there was nothing to add.
// If the process has no `capabilities`, none are added: the runtimes then use those of the container (tried: runc
// 1.1.5, crun 1.8.1). An rlimit that the process does not list has the engine's value. Unknown members and 64-bit
// integers are kept.
// inherited: RLIMIT_MEMLOCK of the runtime, as for edit_spec(). Errors: process is not an object, or has a member of a
// wrong type; it is then unchanged.
Result<bool> edit_process(const ProcessGrant& grant, base::Json& process,
                          const std::optional<hook::Rlimit>& inherited = std::nullopt);

inline constexpr const char* kExecGrantName = "rdma-runtime.json";
inline constexpr const char* kOriginalName = "rdma-runtime.config.json";

// The grant of a container as `exec` needs it.
struct ExecGrant {
  std::string id;      // id of the container
  FileVersion edited;  // version of the edited config.json
  ProcessGrant process;
};

// Converts between an exec grant and the text of its file. Pure. Errors: a missing member, or a member of a wrong type.
std::string exec_grant_text(const ExecGrant& exec_grant);
Result<ExecGrant> parse_exec_grant(std::string_view text);

// Reads the exec grant of a bundle. nullopt: the bundle has none. Errors: another user could have written the file, or
// it is damaged.
Result<std::optional<ExecGrant>> read_exec_grant(const std::string& bundle);
// Returns the text that the bundle's config.json had before rdma-runtime edited it. config: version of the present
// config.json. nullopt: the bundle has no exec grant, or its config.json was replaced since the edit, so that the exec
// grant names another version.
Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config);
// The same for a config.json that was opened in the bundle.
Result<std::optional<std::string>> read_original(const SpecFile& config);

// Writes the exec grant with mode 0600, and the unedited config.json. First removes temporary files of killed writers.
// writer: this process. config: the config.json, if `original` is its present text: the unedited config.json is then
// another name of that file, which put_in_place() of the edited one leaves as it is. nullptr: it is a copy with mode
// 0600.
Result<void> write_exec_grant(const std::string& bundle, const ExecGrant& exec_grant, std::string_view original,
                              const base::ProcessIdentity& writer, const SpecFile* config = nullptr);
// Removes the exec_grant, the unedited config.json, and temporary files of killed writers.
void remove_exec_grant(const std::string& bundle);

}  // namespace shim
