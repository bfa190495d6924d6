// Two files in the bundle of a container that rdma-runtime edited. rdma-runtime.json records the grant, for `exec`.
// rdma-runtime.config.json is the unedited config.json, for a bundle that is started again. An annotation is not safe
// for this: a user with access to the container's annotations could forge it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hook/base/json/json.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "shim/result.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {

// Limits and capabilities that each process of the container gets.
struct ProcessGrant {
  bool ipc_lock = false;                 // CAP_IPC_LOCK
  std::optional<std::uint64_t> memlock;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: unchanged
  friend bool operator==(const ProcessGrant&, const ProcessGrant&) = default;
};

ProcessGrant process_grant(const hook::Plan& plan);

// Adds the grant to the process file of `exec --process FILE`. Engines (`kubectl exec`, `docker exec`) write this file
// from their own copy of the specification, which lacks the edits of rdma-runtime. Pure. Returns true if the process
// was changed; an edited process stays as it is.
// If the process has no `capabilities`, none are added: the runtimes then use those of the container (tried: runc
// 1.1.5, crun 1.8.1). They take an rlimit that the process does not list from the engine. Unknown members and 64-bit
// integers are kept.
// inherited: as edit_spec()'s. Errors: not an object, a member of a wrong type; the process is then unchanged.
Result<bool> edit_process(const ProcessGrant& grant, hook::Json& process,
                          const std::optional<hook::Rlimit>& inherited = std::nullopt);

inline constexpr const char* kMarkerName = "rdma-runtime.json";
inline constexpr const char* kOriginalName = "rdma-runtime.config.json";

struct Marker {
  std::string id;      // of the container
  FileVersion edited;  // version of the config.json that was written
  ProcessGrant process;
};

// Converts between a marker and the text of its file. Pure. Errors: a missing member, or a member of a wrong type.
std::string marker_text(const Marker& marker);
Result<Marker> parse_marker(std::string_view text);

// Reads the marker of a bundle. nullopt: the bundle has none. Errors: another user could have written the file, or it
// is damaged.
Result<std::optional<Marker>> read_marker(const std::string& bundle);
// Reads the bundle's config.json from before the edit. config: version of the present config.json. nullopt: the bundle
// has no marker, or the marker names another version.
Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config);

// Writes both files with mode 0600, after removing temporary files of killed writers. writer: this process.
Result<void> leave_marker(const std::string& bundle, const Marker& marker, std::string_view original,
                          const hook::ProcessIdentity& writer);
// Removes both files, and temporary files of killed writers.
void remove_marker(const std::string& bundle);

}  // namespace shim
