#include "init/deciding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fabric/text.hpp"

namespace init {

using fabric::printable;

std::optional<nccl::Version> Deciding::image_version() const {
  const Setting* image = kept.find("NCCL_VERSION");
  return image && !policy.nccl_version ? nccl::parse_version(image->value) : std::nullopt;
}

void Deciding::put(std::string_view name, std::string value, std::string reason) {
  if (kept.in_effect(name)) return;
  decision.notes.push_back(fmt::format("{}={}: {}", name, printable(value), reason));
  decision.env.emplace_back(name, std::move(value));
}

std::optional<fabric::Family> Deciding::kept_family() const {
  const Setting* family = kept.find(kGidRuleNames[0]);
  if (!family || (family->value != "AF_INET" && family->value != "AF_INET6")) return std::nullopt;
  return family->value == "AF_INET" ? fabric::Family::kIpv4 : fabric::Family::kIpv6;
}

std::vector<WantedGid> Deciding::wanted() const {
  std::vector<WantedGid> gids;
  for (const std::size_t i : choice.ports) {
    const UsableGid* best = choice.rank && !at(i).port->is_infiniband() ? effective_gid(i) : nullptr;
    if (best) gids.push_back({i, &at(i), *best});
  }
  return gids;
}

nccl::GidRules Deciding::effective_rules(bool with_kept) const {
  const auto value = [&](std::string_view name) {
    const Setting* setting = with_kept ? kept.in_effect(name) : nullptr;
    return setting ? std::string_view(setting->value) : std::string_view();
  };
  std::string_view family = value(kGidRuleNames[0]);
  // export_nccl() will say so: left alone, NCCL looks for IPv4.
  if (family.empty() && choice.rank && *choice.rank != GidRank::kIpv4) family = "AF_INET6";
  nccl::GidRules rules = nccl::parse_gid_rules(family, value(kGidRuleNames[1]), value(kGidRuleNames[2]));
  rules.version = version();
  return rules;
}

const UsableGid* Deciding::effective_gid(std::size_t i) const {
  if (at(i).port->is_infiniband() || !choice.rank) return nullptr;
  const auto moved = plan.moved.find(i);
  if (plan.index || moved != plan.moved.end()) {
    const unsigned index = plan.index ? *plan.index : moved->second;
    const auto& gids = at(i).gids;
    const auto found = std::find_if(gids.begin(), gids.end(), [&](const UsableGid& gid) { return gid.index == index; });
    if (found != gids.end()) return &*found;
  }
  return at(i).best(*choice.rank);
}

std::optional<unsigned> Deciding::agreed_index() const {
  std::optional<unsigned> index;
  for (const std::size_t i : choice.ports) {
    const UsableGid* gid = effective_gid(i);
    if (!gid || (index && *index != gid->index)) return std::nullopt;
    index = gid->index;
  }
  return index;
}

std::vector<ChosenPort> Deciding::chosen_ports() const {
  std::vector<ChosenPort> ports;
  for (const std::size_t i : choice.ports) {
    ChosenPort port{&at(i), {}};
    if (const UsableGid* gid = effective_gid(i)) {
      port.netdev = gid->netdev;
    } else if (!at(i).netdevs.empty()) {
      // InfiniBand has no such GID. The IPoIB netdev is named for UCX's TCP, so it has to be up with an address.
      const fabric::Netdev* ipoib = fabric::find_netdev(inventory, at(i).netdevs.front());
      if (ipoib && ipoib->is_up() && !ipoib->addresses.empty()) port.netdev = ipoib->name;
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

void Deciding::refuse(std::string why, std::string remedy) {
  if (decision.refusal) return;
  decision.refusal = std::move(why);
  decision.refusal_remedy = std::move(remedy);
}

}  // namespace init
