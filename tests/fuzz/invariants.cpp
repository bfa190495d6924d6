#include "invariants.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "init/format_env.hpp"
#include "init/nccl_rules.hpp"
#include "init/pending.hpp"
#include "init/topo.hpp"
#include "require.hpp"

namespace fuzz {
namespace {

using fabric::Inventory;
using namespace init;

const std::string* find_value(const Decision& decision, std::string_view name) {
  for (const auto& [key, value] : decision.env)
    if (key == name) return &value;
  return nullptr;
}

// Calls `visit` with each port and its report. Both are in inventory order.
template <typename Visit>
void each_port(const Inventory& inventory, const Decision& decision, Visit visit) {
  std::size_t number = 0;
  for (const fabric::Hca& hca : inventory.hcas) {
    for (const fabric::Port& port : hca.ports) {
      require(number < decision.ports.size(), "every port is reported");
      visit(hca, port, decision.ports[number++]);
    }
  }
  require(number == decision.ports.size(), "every port is reported once");
}

void check_status(const Decision& decision, const init::Policy& policy) {
  const bool any_used =
      std::any_of(decision.ports.begin(), decision.ports.end(), [](const PortReport& port) { return port.used; });
  require((decision.status == init::Status::kOkWarn) == !decision.warnings.empty(), "ok_warn exactly with warnings");
  require((decision.status == init::Status::kNone) == !any_used, "status none exactly when no port is used");
  if (decision.status == init::Status::kNone) {
    const std::size_t of_efa = decision.efa && find_value(decision, "FI_PROVIDER") ? 1 : 0;
    require(decision.env.size() == of_efa, "status none exports nothing, but for EFA libfabric's provider");
    require(!decision.summary.empty(), "status none has its reason");
  }
  if (decision.usable_hcas < policy.require) require(decision.refusal.has_value(), "--require unmet is refused");
  if (policy.require == 0 && !policy.strict) require(!decision.refusal, "no refusal without --require and --strict");
}

void check_variables(const Decision& decision, const Settings& settings, const init::Policy& policy) {
  std::set<std::string_view> names;
  for (const auto& [name, value] : decision.env) {
    require(names.insert(name).second, "a variable is exported once", name);
    require(!value.empty(), "no exported value is empty", name);
    require(std::all_of(name.begin(), name.end(),
                        [](char c) {
                          return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                        }),
            "names of variables are identifiers", name);
    require(decision.kept.find(name) == decision.kept.end(), "a variable is exported or kept, not both", name);
    if (!policy.override_wrong) require(!init::find_setting(settings, name), "a variable that is set is kept", name);
  }
}

void check_text(const Decision& decision) {
  require_one_line(decision.summary, "the summary");
  require_one_line(decision.remedy, "the remedy");
  for (const auto* checks : {&decision.warnings, &decision.asides, &decision.remarks}) {
    for (const init::Check& check : *checks) {
      require_one_line(line_of(check), "a warning");
      require(!check.name.empty(), "every warning has a stable name", check.message);
    }
  }
  for (const std::string& line : decision.notes)
    require_one_line(line, "a note");
  for (const PortReport& port : decision.ports) {
    require(!port.reason.empty(), "every port has a reason");
    require(port.used == port.cause.empty(), "the reason of every port that is not used has a stable name",
            port.reason);
    require_one_line(port.reason, "a reason");
    require_one_line(port.remedy, "a remedy");
  }
  for (const auto& [name, kept] : decision.kept)
    if (kept.problem) require_one_line(*kept.problem, "a problem");
  if (decision.refusal) require_one_line(*decision.refusal, "the refusal");
}

// Demands a used GID of RoCE v2, with an address on an up netdev of this netns, or on the node's netdev of the port.
void check_used_gid(const Inventory& inventory, const init::Policy& policy, const fabric::Hca& hca,
                    const fabric::Port& port, const PortReport& report) {
  require(report.gid_index && report.gid, "a used RoCE port has a GID");
  const bool right = std::any_of(port.gids.begin(), port.gids.end(), [&](const fabric::GidEntry& entry) {
    return entry.index == *report.gid_index && entry.gid == *report.gid && entry.is_v2();
  });
  require(right, "the used GID is in the table, as RoCE v2");
  const bool own = std::any_of(inventory.netdevs.begin(), inventory.netdevs.end(), [&](const fabric::Netdev& netdev) {
    return netdev.is_here() && netdev.is_up() &&
           std::any_of(netdev.addresses.begin(), netdev.addresses.end(),
                       [&](const fabric::InterfaceAddress& address) { return address.address == *report.gid; });
  });
  if (own) return;
  const auto node = init::find_node_gids(hca, port, policy.gids.node_addresses);
  const bool nodes = std::any_of(node.gids.begin(), node.gids.end(),
                                 [&](const fabric::GidEntry* entry) { return entry->index == *report.gid_index; });
  require(policy.gids.node_gids && nodes, "the used GID is an address of this netns, on a netdev that is up");
}

// Returns true if NCCL_IB_HCA can distinguish all ports by name and number.
bool can_be_listed(const Inventory& inventory) {
  std::set<std::string_view> names;
  for (const fabric::Hca& hca : inventory.hcas) {
    if (hca.name.size() > 63 || hca.name.find_first_of(",:") != std::string::npos) return false;
    if (!names.insert(hca.name).second) return false;
    std::set<unsigned> ports;
    for (const fabric::Port& port : hca.ports) {
      if (port.number == 0 || !ports.insert(port.number).second) return false;
      for (std::size_t i = 1; i < port.gids.size(); ++i)
        if (port.gids[i].index == port.gids[i - 1].index) return false;
    }
  }
  return true;
}

// Demands that NCCL, with the exported and the kept variables, uses the reported ports and GIDs.
void check_nccl(const Inventory& inventory, const Settings& settings, const init::Policy& policy,
                const Decision& decision) {
  const std::string* list_value = find_value(decision, "NCCL_IB_HCA");
  const bool any_problem = std::any_of(decision.kept.begin(), decision.kept.end(),
                                       [](const auto& kept) { return kept.second.problem.has_value(); });
  if (!list_value || any_problem || decision.needs_full || !can_be_listed(inventory)) return;
  require(list_value->starts_with('='), "NCCL_IB_HCA is exact", *list_value);
  const auto list = init::nccl::parse_hca_list(*list_value);
  const auto value_of = [&](std::string_view name) -> std::string {
    if (const std::string* exported = find_value(decision, name)) return *exported;
    const auto* kept = init::find_setting(settings, name);
    return kept && decision.kept.find(name) != decision.kept.end() ? kept->value : "";
  };
  const long index = init::nccl::parse_param(value_of("NCCL_IB_GID_INDEX"), -1);
  auto rules = init::nccl::parse_gid_rules(value_of("NCCL_IB_ADDR_FAMILY"), value_of("NCCL_IB_ADDR_RANGE"),
                                           value_of("NCCL_IB_ROCE_VERSION_NUM"));
  rules.version = policy.nccl_version.value_or(init::nccl::kNewest);
  const auto used = static_cast<std::size_t>(
      std::count_if(decision.ports.begin(), decision.ports.end(), [](const PortReport& port) { return port.used; }));
  each_port(inventory, decision, [&](const fabric::Hca& hca, const fabric::Port& port, const PortReport& report) {
    if (used <= init::nccl::kMaxPorts)
      require(list.matches(hca.name, port.number) == report.used, "NCCL_IB_HCA takes the used ports and no other",
              *list_value);
    if (!report.used || port.is_infiniband()) return;
    const auto choice =
        index >= 0 ? init::nccl::GidChoice{static_cast<unsigned>(index), false} : init::nccl::choose_gid(port, rules);
    require(choice.index == report.gid_index && !choice.uncertain, "NCCL ends at the GID that is reported",
            fmt::format("{}:{}", hca.name, port.number));
  });
}

// Returns the variables that a POSIX shell would set: `export NAME=WORD` lines, with words of '...' and \'.
init::Variables read_sh(std::string_view text) {
  init::Variables variables;
  constexpr std::string_view kExport = "export ";
  while (!text.empty()) {
    require(text.starts_with(kExport), "a line of --format sh exports", text);
    const std::size_t equals = text.find('=');
    require(equals != std::string_view::npos, "a line of --format sh assigns", text);
    const std::string name(text.substr(kExport.size(), equals - kExport.size()));
    text.remove_prefix(equals + 1);
    std::string value;
    while (!text.starts_with('\n')) {
      require(!text.empty() && (text[0] == '\'' || text.starts_with("\\'")), "a word of --format sh is quoted", text);
      const std::size_t end = text[0] == '\'' ? text.find('\'', 1) : 1;
      require(end != std::string_view::npos, "a quote of --format sh ends", text);
      value += text[0] == '\'' ? text.substr(1, end - 1) : "'";
      text.remove_prefix(end + 1);
    }
    text.remove_prefix(1);
    variables.emplace_back(name, value);
  }
  return variables;
}

void check_output(const Inventory& inventory, const Settings& settings, const init::Policy& policy,
                  const Decision& decision) {
  require(read_sh(init::format_sh(decision)) == decision.env, "--format sh gives the variables back");
  const auto json = nlohmann::json::parse(init::format_json(decision), nullptr, false);
  require(json.is_object() && json.at("env").size() == decision.env.size(), "--format json is one object");
  require(json.at("ports").size() == decision.ports.size(), "--format json lists every port");
  (void)init::format_dotenv(decision);
  auto checks = init::check_up(inventory, settings, decision);
  for (const auto& more :
       {init::check_other_values(inventory, settings, policy, decision), init::check_hcas(inventory, policy, decision)})
    checks.insert(checks.end(), more.begin(), more.end());
  require(nlohmann::json::accept(init::doctor_json(decision, checks)), "doctor --json is JSON");
  require(nlohmann::json::accept(init::topo_json(inventory, decision)), "topo --json is JSON");
  for (const std::string& text : {init::doctor_text(decision, checks), init::doctor_text(decision, checks, false),
                                  init::topo_text(inventory, decision)}) {
    for (const std::string_view line : base::split(text, '\n'))
      require_one_line(line, "a line of doctor or topo");
  }
  if (const auto pending = init::find_pending(inventory, settings, policy))
    require_one_line(*pending, "the pending GID");
}

}  // namespace

Decision decide_checked(const Inventory& inventory, const Settings& settings, const init::Policy& policy) {
  Decision decision = init::decide(inventory, settings, policy);
  check_status(decision, policy);
  check_variables(decision, settings, policy);
  check_text(decision);
  const std::string* index = find_value(decision, "NCCL_IB_GID_INDEX");
  each_port(inventory, decision, [&](const fabric::Hca& hca, const fabric::Port& port, const PortReport& report) {
    require(report.device == hca.name && report.port == port.number, "ports are reported in inventory order");
    if (!report.used) return;
    require(hca.is_accessible() && port.is_active(), "a used port is active and its node opens");
    require(!hca.is_rejected(), "libibverbs accepts the provider of a used port");
    require(port.is_infiniband() || port.is_ethernet(), "a used port is InfiniBand or Ethernet");
    if (port.is_infiniband()) return;
    check_used_gid(inventory, policy, hca, port, report);
    if (index && !index->starts_with('-'))
      require(std::to_string(*report.gid_index) == *index, "NCCL_IB_GID_INDEX is right on every port");
  });
  check_nccl(inventory, settings, policy, decision);
  check_output(inventory, settings, policy, decision);
  return decision;
}

}  // namespace fuzz
