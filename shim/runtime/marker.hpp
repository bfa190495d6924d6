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

inline constexpr const char* kMarkerName = "rdma-runtime.json";
inline constexpr const char* kOriginalName = "rdma-runtime.config.json";

struct Marker {
  std::string id;      // id of the container
  FileVersion edited;  // version of the edited config.json
  ProcessGrant process;
};

// Converts between a marker and the text of its file. Pure. Errors: a missing member, or a member of a wrong type.
std::string marker_text(const Marker& marker);
Result<Marker> parse_marker(std::string_view text);

// Reads the marker of a bundle. nullopt: the bundle has none. Errors: another user could have written the file, or it
// is damaged.
Result<std::optional<Marker>> read_marker(const std::string& bundle);
// Returns the text that the bundle's config.json had before rdma-runtime edited it. config: version of the present
// config.json. nullopt: the bundle has no marker, or its config.json was replaced since the edit, so that the marker
// names another version.
Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config);

// Writes the marker and the unedited config.json with mode 0600. First removes temporary files of killed writers.
// writer: this process.
Result<void> leave_marker(const std::string& bundle, const Marker& marker, std::string_view original,
                          const base::ProcessIdentity& writer);
// Removes the marker, the unedited config.json, and temporary files of killed writers.
void remove_marker(const std::string& bundle);

}  // namespace shim
