#include "init/rdma_off.hpp"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/text.hpp"

namespace init {
namespace {

using Names = std::vector<std::string_view>;

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool same_name(const std::string& left, const char* right) {
  return ::strcasecmp(left.c_str(), right) == 0;
}

struct Remarks {
  const Settings& settings;
  std::vector<Check> checks = {};

  const Setting* find(std::string_view name) const { return find_setting(settings, name); }
  void add(std::string_view name, std::string_view message, Verdict effect = Verdict::kSlow) {
    const Setting& setting = *find(name);
    checks.push_back(
        {effect == Verdict::kSlow ? "rdma-off" : "plugin", effect,
         fmt::format("{}={} ({}): {}", name, printable(setting.value), printable(setting.source), message)});
  }
};

void check_networks(Remarks& remarks) {
  const Setting* network = remarks.find("NCCL_NET");
  if (network && same_name(network->value, "Socket")) return remarks.add("NCCL_NET", "NCCL will not use RDMA");
  if (network && same_name(network->value, "IB")) return;
  if (network) {
    remarks.add("NCCL_NET", "NCCL will use only the plugin with this network, which may ignore NCCL_IB_*",
                Verdict::kNote);
  }
  const Setting* plugin = remarks.find("NCCL_NET_PLUGIN");
  if (plugin && !same_name(plugin->value, "none")) {
    remarks.add("NCCL_NET_PLUGIN", "NCCL prefers this plugin to its own RDMA, and the plugin may ignore NCCL_IB_*",
                Verdict::kNote);
  }
}

void check_nccl(Remarks& remarks, const std::optional<nccl::Version>& version) {
  const Setting* off = remarks.find("NCCL_IB_DISABLE");
  if (off && nccl::parse_param(off->value, 0) != 0) remarks.add("NCCL_IB_DISABLE", "NCCL will not use RDMA");
  check_networks(remarks);
  const Setting* reader = remarks.find("NCCL_ENV_PLUGIN");
  if (reader && !same_name(reader->value, "none") && (!version || *version >= nccl::kEnvPlugin)) {
    remarks.add("NCCL_ENV_PLUGIN", "NCCL 2.29 and later take all settings from this plugin, and may not see exports",
                Verdict::kNote);
  }
}

// UCX's transports over RDMA, each with its aliases.
constexpr std::array<std::array<std::string_view, 4>, 5> kTransports = {{{"rc_verbs", "rc_v", "rc", "ib"},
                                                                         {"rc_mlx5", "rc_x", "rc", "ib"},
                                                                         {"dc_mlx5", "dc_x", "dc", "ib"},
                                                                         {"ud_verbs", "ud_v", "ud", "ib"},
                                                                         {"ud_mlx5", "ud_x", "ud", "ib"}}};
// Only certain HCAs have these, so a list that excludes kTransports excludes RDMA, too.
constexpr std::array<std::string_view, 2> kSpecialTransports = {"srd", "gga_mlx5"};

bool allows_transport(std::string_view value) {
  const bool exclude = value.starts_with('^');
  if (exclude) value.remove_prefix(1);
  const Names entries = base::split(value, ',');
  if (is_one_of(entries, "all")) return true;
  const auto is_listed = [&](const auto& names) {
    return is_one_of(entries, fmt::format("\\{}", names[0])) ||
           std::ranges::any_of(names, [&](std::string_view name) { return is_one_of(entries, name); });
  };
  if (exclude) return !std::ranges::all_of(kTransports, is_listed);
  return std::ranges::any_of(kTransports, is_listed) ||
         std::ranges::any_of(kSpecialTransports, [&](std::string_view name) {
           return is_one_of(entries, name) || is_one_of(entries, fmt::format("\\{}", name));
         });
}

bool allows_hca(std::string_view value, const std::vector<Candidate>& candidates) {
  const bool exclude = value.starts_with('^');
  if (exclude) value.remove_prefix(1);
  const Names entries = base::split(value, ',');
  if (is_one_of(entries, "all")) return true;
  if (exclude) {
    return candidates.empty() ||
           !std::ranges::all_of(candidates, [&](const Candidate& c) { return is_one_of(entries, c.name()); });
  }
  // UCX calls a port NAME:PORT, and no netdev has a colon. Newer versions read ranges: mlx5_[0-3]:1.
  return std::ranges::any_of(entries, [](std::string_view entry) { return entry.find_first_of(":[") != entry.npos; });
}

void check_ucx(Remarks& remarks, const std::vector<Candidate>& candidates) {
  if (const Setting* list = remarks.find("UCX_TLS"); list && !allows_transport(list->value)) {
    remarks.add("UCX_TLS", "has no RDMA transport: UCX will not use RDMA");
  }
  if (const Setting* list = remarks.find("UCX_NET_DEVICES"); list && !allows_hca(list->value, candidates)) {
    remarks.add("UCX_NET_DEVICES", "has no HCA: UCX will not use RDMA");
  }
}

}  // namespace

std::vector<Check> settings_without_rdma(const Settings& settings, const std::vector<std::string>& exports,
                                         const std::optional<nccl::Version>& version,
                                         const std::vector<Candidate>& candidates) {
  Remarks remarks{settings};
  const auto writes_for = [&](std::string_view library) {
    return std::ranges::find(exports, library) != exports.end();
  };
  if (writes_for("nccl")) check_nccl(remarks, version);
  if (writes_for("ucx")) check_ucx(remarks, candidates);
  return std::move(remarks.checks);
}

}  // namespace init
