// An existing CNI IPAM plugin gives the addresses: the CNI protocol (spec 1.0.0; results of 0.3.1 to 1.1.0 are read)
// spoken by a helper process that is forked before the hook's system calls are restricted, because a hook that may
// execute programs is another hook.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a Json throws nothing, nlohmann only does not say so
struct IpamCall {
  enum class Command { kAdd, kDel };
  Command command = Command::kAdd;
  std::string plugin;        // its file name
  std::string network;       // "name" of the network configuration
  Json ipam;                 // the "ipam" object, "type" included
  std::string container_id;  // CNI_CONTAINERID: the grant's key; [A-Za-z0-9_.-]
  std::string netns;         // CNI_NETNS: a path, may be empty for kDel
  std::string ifname;        // CNI_IFNAME
  std::string args = {};     // CNI_ARGS, of cni_args(); empty: not set
};

struct IpamResult {
  std::vector<RailAddress> addresses;
  // Routes that the plugin asks for: destination/prefix by gateway (nullopt: the address's own).
  struct Route {
    fabric::Address destination;
    unsigned prefix = 0;
    std::optional<fabric::Address> gateway;
  };
  std::vector<Route> routes;
};

inline constexpr std::size_t kMostOutput = std::size_t{1} << 20;  // of a plugin, bytes
// Pure. Errors: no JSON, {"code","msg","details"} as a plugin reports errors, no address at all, an address that does
// not parse, a gateway of another family.
fabric::Result<IpamResult> parse_ipam_result(std::string_view text);
// Pure. Returns the message of an error as plugins report them; nullopt: the text is none.
std::optional<std::string> cni_error_of(std::string_view text);
// Pure. Returns a plugin's output, shortened and printable, for messages.
std::string quote_output(std::string_view text);
// Pure: what goes to the plugin's stdin.
std::string ipam_config(const IpamCall& call);

// What a helper may run. NOLINTNEXTLINE(bugprone-exception-escape): as IpamCall
struct IpamProgram {
  std::string plugin;
  std::string network;
  Json ipam;
  std::vector<std::string> directories;  // where it is looked for, in this order; of the configuration only
  bool may_give = false;                 // the configuration has it; what only a record has may take back
};

}  // namespace hook
