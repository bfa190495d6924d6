#include "shim/dra/show.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/read_config.hpp"
#include "hook/plan/parts.hpp"
#include "shim/dra/node.hpp"
#include "shim/kubelet/away_hcas.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {
namespace {

constexpr int kIndent = 2;

}  // namespace

Result<void> name_node(std::string& node) {
  if (const char* variable = std::getenv("NODE_NAME"); node.empty() && variable) node = variable;
  utsname host{};
  if (node.empty() && ::uname(&host) == 0) {
    node = host.nodename;
    std::ranges::transform(node, node.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  }
  if (is_dns_subdomain(node)) return {};
  return Error{fmt::format("`{}` is not the name of a node", base::printable(node)), EINVAL,
               "pass --node, with the name that `kubectl get nodes` prints"};
}

Result<void> show_slices(DraSettings settings, const base::Log& log) {
  TRY_VOID(name_node(settings.cluster.node));
  const hook::NodeSettings& node = settings.node;
  const hook::Config config = TRY(hook::read_config(node.config));
  fabric::Inventory inventory = TRY(hook::read_whole_node(config, node, dra_facts(config)));
  TRY_VOID(hook::was_read(inventory, fabric::Unread::Part::kHcas));
  HcaHolds holds;
  // The ledger of this node does not describe a snapshot.
  if (!node.snapshot) {
    HeldHcaReader held(node.ledger, HeldHcaReader::Foreign::kOutsideOfClaims);
    std::vector<Error> unread;
    TRY_VOID(held.read(unread));
    if (!unread.empty()) return std::move(unread.front());
    holds = held.of(inventory, node.root);
    for (const auto& [device, hca] : held.away())
      add_away_hca(device, hca, node.ledger, node.root, inventory);
  }
  const auto published = published_devices(inventory, config, names_on(inventory, node), holds, settings.cluster);
  log.warnings(published.warnings);
  base::Json list{{"apiVersion", "v1"}, {"kind", "List"}};
  list["items"] = resource_slices(published.devices, settings.cluster);
  std::fputs((list.dump(kIndent) + "\n").c_str(), stdout);
  return {};
}

}  // namespace shim
