// What rdma-runtime leaves in the bundle of a container that it edited: rdma-runtime.json says what was granted, for
// `exec`; rdma-runtime.config.json is config.json as it was, for a bundle that is started again. An annotation would
// not do: a user who writes the container's annotations could write it, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "shim/runtime/exec_process.hpp"
#include "shim/runtime/spec_file.hpp"

namespace shim {

inline constexpr const char* kMarkerName = "rdma-runtime.json";
inline constexpr const char* kOriginalName = "rdma-runtime.config.json";

struct Marker {
  std::string id;      // of the container
  FileVersion edited;  // which config.json was written
  ProcessGrant process;
};

// Pure: the file's text and back. Errors: a missing member, or one of a wrong type.
std::string marker_text(const Marker& marker);
fabric::Result<Marker> parse_marker(std::string_view text);

// nullopt: there is no marker. Errors: one that another user could have written, or that is damaged.
fabric::Result<std::optional<Marker>> read_marker(const std::string& bundle);
// The config.json that was there before it was edited; nullopt: `config` is not what was written, or nothing was.
fabric::Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config);

// Writes both, 0600. Removes first what writers left that were killed. writer: this process.
fabric::Result<void> leave_marker(const std::string& bundle, const Marker& marker, std::string_view original,
                                  const hook::ProcessIdentity& writer);
// Both, and what writers left.
void remove_marker(const std::string& bundle);

}  // namespace shim
