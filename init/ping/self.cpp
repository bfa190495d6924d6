#include "init/ping/self.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "base/proc.hpp"
#include "base/text.hpp"
#include "init/bootstrap.hpp"
#include "init/options.hpp"
#include "init/resolve.hpp"

namespace init::ping {
namespace {

// Ranks with this text share kernel and network namespace, so they share HCAs and addresses. Host names may repeat.
std::string read_node() {
  const auto boot = base::read_boot_id();
  struct stat space {};
  ::stat("/proc/self/ns/net", &space);
  return fmt::format("{}:{}", base::value_or(boot, this_host()).substr(0, kLongestName / 2 + 8), space.st_ino);
}

bool is_of(const fabric::Netdev& netdev, const SocketAddress& address) {
  return std::ranges::any_of(netdev.addresses, [&](const fabric::InterfaceAddress& own) {
    const std::string text = to_string(own.address);
    return to_string(address).starts_with(own.address.is_ipv4() ? text + ":" : "[" + text + "]:");
  });
}

}  // namespace

std::vector<const char*> read_by(const nccl::Version& version, const char* const* environment) {
  std::vector<const char*> variables;
  for (; *environment; ++environment) {
    const bool is_read = version >= nccl::kConfFile || !std::string_view(*environment).starts_with("NCCL_CONF_FILE=");
    if (is_read) variables.push_back(*environment);
  }
  variables.push_back(nullptr);
  return variables;
}

Result<Self> read_self(const Options& options, char* const* environment, const Log& log) {
  Self self;
  self.place = TRY(find_place(options.rank, options.size, options.master, environment));
  char name[] = "rdma-ping";
  char command[] = "doctor";
  std::array<char*, 3> arguments{name, command, nullptr};
  init::Options reading = TRY(init::parse_options(2, arguments.data(), environment));
  reading.wait_seconds = 0;
  reading.policy.override_wrong = false;  // NCCL reads the values that are set now
  Settings own;
  add_environment(environment, own);
  const nccl::Version version = nccl_version(reading.policy.nccl_version, own).value_or(nccl::kNewest);
  Resolved resolved = resolve_machine(reading, read_by(version, environment).data(), log);
  const Settings& settings = resolved.settings;
  self.choice = nccl_choice(resolved.inventory, settings, version);
  self.bootstrap = bootstrap_netdev(resolved.inventory, settings, version).value_or("");
  self.netdevs = std::move(resolved.inventory.netdevs);
  self.join = {self.place.rank, self.place.size, read_node(), this_host(), self.choice.rails, self.choice.unused};
  return self;
}

Result<SocketAddress> listening_address(const Self& self, const Log& log) {
  const auto named = resolve_host(self.place.host, self.place.port);
  for (const SocketAddress& address : named ? *named : std::vector<SocketAddress>()) {
    const auto owner = std::ranges::find_if(self.netdevs, [&](const auto& netdev) { return is_of(netdev, address); });
    if (owner == self.netdevs.end()) continue;
    if (!self.bootstrap.empty() && owner->name != self.bootstrap) {
      log.warning(fmt::format("the meeting point {} is on {}, and NCCL's bootstrap uses {}", to_string(address),
                              printable(owner->name), printable(self.bootstrap)),
                  "name an address of the same network, or set NCCL_SOCKET_IFNAME");
    }
    return address;
  }
  const auto netdev = std::ranges::find(self.netdevs, self.bootstrap, &fabric::Netdev::name);
  if (netdev == self.netdevs.end() || netdev->addresses.empty()) {
    return base::Error{
        fmt::format("`{}` is no address of this host, which is rank 0, and no netdev here fits NCCL's bootstrap",
                    printable(self.place.host)),
        0, "check --master or MASTER_ADDR, and NCCL_SOCKET_IFNAME"};
  }
  // A link-local address needs a scope, which other ranks do not know.
  const auto own = std::ranges::find_if(
      netdev->addresses, [](const fabric::InterfaceAddress& address) { return !address.address.is_link_local(); });
  if (own == netdev->addresses.end())
    return base::make_error("{}, the netdev of NCCL's bootstrap, has only a link-local address",
                            printable(netdev->name));
  return TRY(resolve_host(to_string(own->address), self.place.port)).front();
}

}  // namespace init::ping
