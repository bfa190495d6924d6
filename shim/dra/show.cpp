#include "shim/dra/show.hpp"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/read_config.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/parts.hpp"
#include "shim/dra/claims.hpp"
#include "shim/dra/node.hpp"
#include "shim/kubelet/away_hcas.hpp"
#include "shim/kubelet/held_hcas.hpp"

namespace shim {
namespace {

constexpr int kIndent = 2;
constexpr int kReadMs = 10000;  // longest time for reading the standard input

// A node with its configuration and grants.
struct ShownNode {
  hook::Config config;
  fabric::Inventory inventory;
  HcaHolds holds;
  DeviceNames names;
};

Result<ShownNode> read_shown_node(const hook::NodeSettings& settings) {
  ShownNode node;
  node.config = TRY(hook::read_config(settings.config));
  node.inventory = TRY(hook::read_whole_node(node.config, settings, dra_facts(node.config)));
  TRY_VOID(hook::was_read(node.inventory, fabric::Unread::Part::kHcas));
  // The ledger of this node does not describe a snapshot.
  if (!settings.snapshot) {
    HeldHcaReader held(settings.ledger, HeldHcaReader::Foreign::kOutsideOfClaims);
    std::vector<Error> unread;
    TRY_VOID(held.read(unread));
    if (!unread.empty()) return std::move(unread.front());
    node.holds = held.of(node.inventory, settings.root);
    for (const auto& [device, hca] : held.away())
      add_away_hca(device, hca, settings.ledger, settings.root, node.inventory);
  }
  node.names = names_on(node.inventory, settings);
  return node;
}

// Returns the error with this remedy, unless it has one.
Error with_hint(Error error, const char* hint) {
  if (error.hint.empty()) error.hint = hint;
  return error;
}

// Returns the limits of each container of the claim, which do not apply in mode exclusive.
std::string limits_text(const hook::RdmaLimits& limits, hook::Mode mode) {
  std::string text;
  if (mode == hook::Mode::kExclusive) return text;
  if (limits.objects) text += fmt::format(", at most {} objects", *limits.objects);
  if (limits.handles) text += fmt::format(", at most {} contexts", *limits.handles);
  return text;
}

// Returns a line about an HCA of a claim.
Result<std::string> claim_line(const ClaimedHca& claimed, const hook::NodeMap& map, const hook::Config& config) {
  const hook::NodeHca* const node = map.find(claimed.hca);
  if (!node->pool)
    return make_error("{} is in no pool of config.json, so no claim can have it", base::printable(claimed.hca));
  hook::Request request;
  request.mode = claimed.device->parameters.mode;
  request.network = claimed.device->parameters.network;
  const auto terms = hook::terms_for(*node, request, config);
  if (!terms) return base::wrap(terms.error(), base::printable(claimed.hca));
  const auto limits = hook::lower_of(node->pool->rdma_limits, claimed.device->parameters.limits);
  return fmt::format("{} = {}, request {}, pool {}, mode {}, network {}{}{}{}\n", claimed.device->device,
                     base::printable(claimed.hca), claimed.device->request, node->pool->name, to_string(terms->mode),
                     terms->network ? terms->network->name : "none",
                     claimed.device->units > 1 ? fmt::format(", {} units", claimed.device->units) : "",
                     limits_text(limits, terms->mode), claimed.device->is_admin ? ", for monitoring" : "");
}

Result<std::string> read_claim_text(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{2} << 20;
  if (path == "-") return base::read_text_fd(STDIN_FILENO, kLargest, kReadMs, "the claim");
  return base::read_text_file(path, {.bytes = kLargest});
}

Result<Claim> read_claim(const std::string& path) {
  const auto text = read_claim_text(path);
  auto claim = text ? parse_claim(*text) : Result<Claim>(text.error());
  if (claim) return claim;
  Error error = text ? base::wrap(claim.error(), fmt::format("`{}`", base::printable(path))) : text.error();
  return with_hint(std::move(error), "pass a file with the output of `kubectl get resourceclaim NAME -o json`");
}

// Returns the lines about a claim.
Result<std::string> claim_lines(const Claim& claim, const ShownNode& node, const std::string& name) {
  const hook::NodeMap map(node.inventory, node.config);
  std::string lines = fmt::format("claim {}/{} with the UID {}\n", claim.key.space, claim.key.name, claim.key.uid);
  for (const ClaimedHca& claimed : TRY(claimed_hcas(claim, node.names, name)))
    lines += TRY(claim_line(claimed, map, node.config));
  for (const ClaimPod& pod : claim.pods)
    lines += fmt::format("reserved for pod {} with the UID {}\n", pod.name, pod.uid);
  return lines;
}

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
  const ShownNode node = TRY(read_shown_node(settings.node));
  const auto published = published_devices(node.inventory, node.config, node.names, node.holds, settings.cluster);
  log.warnings(published.warnings);
  base::Json list{{"apiVersion", "v1"}, {"kind", "List"}};
  list["items"] = resource_slices(published.devices, settings.cluster);
  std::fputs((list.dump(kIndent) + "\n").c_str(), stdout);
  return {};
}

Result<void> show_claim(DraSettings settings) {
  TRY_VOID(name_node(settings.cluster.node));
  const Claim claim = TRY(read_claim(*settings.claim));
  const ShownNode node = TRY(read_shown_node(settings.node));
  const auto lines = claim_lines(claim, node, settings.cluster.node);
  if (!lines) return with_hint(lines.error(), "let the claim select devices, mode and network that this node has");
  std::fputs(lines->c_str(), stdout);
  return {};
}

}  // namespace shim
