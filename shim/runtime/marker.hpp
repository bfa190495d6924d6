// What rdma-runtime leaves in the bundle of a container that it edited: rdma-runtime.json says what was granted, for
// `exec`; rdma-runtime.config.json is config.json as it was, for a bundle that is started again. An annotation would
// not do: a user who writes the container's annotations could write it, too.
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

// What every process may do of a container that got RDMA.
struct ProcessGrant {
  bool ipc_lock = false;                 // CAP_IPC_LOCK
  std::optional<std::uint64_t> memlock;  // RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: left alone
  friend bool operator==(const ProcessGrant&, const ProcessGrant&) = default;
};

ProcessGrant process_grant(const hook::Plan& plan);

// Pure, of the process of `exec --process FILE`. Engines make it from their own copy of the specification (`kubectl
// exec`, `docker exec`), which has nothing of what rdma-runtime wrote into config.json. True: it was changed. A process
// without `capabilities` keeps having none: the runtimes then take the container's, which have it (tried: runc 1.1.5,
// crun 1.8.1; a limit that is not listed they take from the engine). Unknown members and 64-bit integers are kept, and
// an edited process stays as it is. Errors: no object, a member of a wrong type; nothing is changed then. inherited: as
// edit_spec()'s.
Result<bool> edit_process(const ProcessGrant& grant, hook::Json& process,
                          const std::optional<hook::Rlimit>& inherited = std::nullopt);

inline constexpr const char* kMarkerName = "rdma-runtime.json";
inline constexpr const char* kOriginalName = "rdma-runtime.config.json";

struct Marker {
  std::string id;      // of the container
  FileVersion edited;  // which config.json was written
  ProcessGrant process;
};

// Pure: the file's text and back. Errors: a missing member, or one of a wrong type.
std::string marker_text(const Marker& marker);
Result<Marker> parse_marker(std::string_view text);

// nullopt: there is no marker. Errors: one that another user could have written, or that is damaged.
Result<std::optional<Marker>> read_marker(const std::string& bundle);
// The config.json that was there before it was edited; nullopt: `config` is not what was written, or nothing was.
Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config);

// Writes both, 0600. Removes first what writers left that were killed. writer: this process.
Result<void> leave_marker(const std::string& bundle, const Marker& marker, std::string_view original,
                          const hook::ProcessIdentity& writer);
// Both, and what writers left.
void remove_marker(const std::string& bundle);

}  // namespace shim
