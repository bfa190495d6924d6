// The helper's side of ipam.hpp, and what both sides say to each other: frames of a 32-bit length and that much JSON.
// Internal to hook/rails/address/ipam*.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/rails/address/ipam.hpp"

namespace hook {

inline constexpr std::size_t kLargestFrame = std::size_t{16} << 20;  // 1 MiB of control characters, each as \u0001
inline constexpr std::size_t kMostOutput = std::size_t{1} << 20;

// What became of one plugin.
struct PluginEnd {
  std::string refusal;  // why it was not run, or not to its end; empty: it ended by itself
  std::string hint;
  int code = 0;    // errno of that
  int status = 0;  // as of wait(2)
  std::string out;
  std::string err;  // its beginning
};

// Errors: the other side is gone.
fabric::Result<void> send_frame(int channel, std::string_view text);
// timeout_ms: -1: for ever. Errors: the other side is gone (EPIPE), the time is over (ETIMEDOUT), a frame over
// kLargestFrame.
fabric::Result<std::string> receive_frame(int channel, int timeout_ms);

Json to_json(const IpamCall& call);
IpamCall call_from_json(const Json& json);  // throws what nlohmann/json throws
Json to_json(const PluginEnd& end);
PluginEnd end_from_json(const Json& json);

inline constexpr const char* kIpamInstallHint =
    "install the Debian package containernetworking-plugins, or correct the network's `ipam` in config.json";

// What the environment and the file system would make of a call's words.
fabric::Result<void> check_call(const IpamCall& call);
// config.json is root's alone; what it has run as root should be as well.
fabric::Result<void> check_ipam_program(const std::string& path);
// Pure: what a plugin's end means for the caller.
fabric::Result<IpamResult> to_result(const IpamCall& call, const PluginEnd& end);

// All at once. Ends the process if the channel does. SIGCHLD has to be blocked and at its default.
std::vector<PluginEnd> run_plugins(const std::vector<IpamCall>& calls, int timeout_ms, int channel);
// Milliseconds of CLOCK_MONOTONIC.
long monotonic_ms();

// The helper's whole life.
[[noreturn]] void serve_ipam(int channel, pid_t parent);

}  // namespace hook
