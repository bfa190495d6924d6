// The helper's side of ipam_helper.hpp, and what both sides say to each other: frames of a 32-bit length and that much
// JSON. Internal to hook/rails/address.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/address/ipam_plugins.hpp"

namespace hook {

inline constexpr std::size_t kLargestFrame = std::size_t{16} << 20;  // 1 MiB of control characters, each as \u0001

// Errors: the other side is gone.
fabric::Result<void> send_frame(int channel, std::string_view text);
// timeout_ms: -1 waits for ever. Errors: the other side is gone (EPIPE), the time is over (ETIMEDOUT), a frame over
// kLargestFrame.
fabric::Result<std::string> receive_frame(int channel, int timeout_ms);

Json to_json(const IpamCall& call);
IpamCall call_from_json(const Json& json);  // throws what nlohmann/json throws
Json to_json(const PluginEnd& end);
PluginEnd end_from_json(const Json& json);

// The helper's whole life.
[[noreturn]] void serve_ipam(int channel, pid_t parent, const std::vector<IpamProgram>& programs);

}  // namespace hook
