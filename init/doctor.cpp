#include "init/doctor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/options.hpp"
#include "base/text.hpp"
#include "fabric/port_use.hpp"
#include "init/bootstrap.hpp"
#include "init/format_env.hpp"
#include "init/nccl_rules.hpp"
#include "init/starter.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::Netdev;

constexpr std::uint64_t kLargeRegion = 1ULL << 30;  // enough for NCCL's buffers; programs may register larger ones
constexpr unsigned kIpcLockBit = 14;                // CAP_IPC_LOCK, linux/capability.h

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == fabric::Limits::kUnlimited) return "unlimited";
  if (bytes >= 1 << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} KiB", bytes >> 10);
}

Check check_ports(const Decision& decision) {
  if (decision.efa) return {"ports", Verdict::kNote, decision.summary};
  if (decision.status == Status::kNone) return {"ports", Verdict::kBad, decision.summary, decision.remedy};
  // A warning that certainly breaks the job, or about the GID index of these ports, follows.
  const bool is_wrong = std::ranges::any_of(decision.warnings, [](const Check& warning) {
    return warning.verdict == Verdict::kBad || warning.name == "gid-index";
  });
  return {"ports", is_wrong ? Verdict::kNote : Verdict::kGood, decision.summary};
}

// Checks the limit for memory registration. ib_umem_get() refuses to pin more than RLIMIT_MEMLOCK unless CAP_IPC_LOCK
// is effective.
Check check_memlock(const fabric::Limits& limits) {
  if (!limits.memlock_hard && !limits.cap_eff)
    return {"memlock", Verdict::kNote, "RLIMIT_MEMLOCK and capabilities are not known"};
  const bool capable =
      limits.cap_eff && (*limits.cap_eff >> kIpcLockBit & 1) != 0 && limits.initial_userns.value_or(true);
  const std::uint64_t limit =
      limits.memlock_hard.value_or(limits.kUnlimited);  // raise_memlock() raises the soft limit to it
  if (capable) return {"memlock", Verdict::kGood, "CAP_IPC_LOCK is effective: ibv_reg_mr may pin any amount"};
  if (const auto soft = limits.memlock_soft; limit >= kLargeRegion && soft && *soft < kLargeRegion) {
    return {
        "memlock", Verdict::kNote,
        fmt::format("the soft RLIMIT_MEMLOCK is {}, the hard one {}: rdma-init raises it for its trainer, and other "
                    "programs (exec, srun) fail",
                    bytes_text(*soft), bytes_text(limit)),
        "start the trainer by `rdma-init --`, or run `ulimit -S -l $(ulimit -H -l)` before it"};
  }
  if (limit >= kLargeRegion) {
    return {"memlock", Verdict::kGood, fmt::format("RLIMIT_MEMLOCK is {}: enough for ibv_reg_mr", bytes_text(limit))};
  }
  // can_do_mlock() (mm/mlock.c, Linux 6.12) refuses a limit of 0 with EPERM.
  std::string why = fmt::format("RLIMIT_MEMLOCK is {} and CAP_IPC_LOCK is not effective: ibv_reg_mr {} with \"{}\"",
                                bytes_text(limit), limit == 0 ? "fails" : "of more fails",
                                std::strerror(limit == 0 ? EPERM : ENOMEM));
  if (limits.initial_userns == false) {
    why += "; capabilities of a user namespace do not count";
  } else if (limits.uid.value_or(0) != 0) {
    why += "; adding IPC_LOCK does not help: the effective set of a user other than root is empty";
  }
  const char* const remedy = limits.initial_userns == false ? kRootlessMemlockRemedy : kMemlockRemedy;
  return {"memlock", Verdict::kBad, why, remedy};
}

// Returns true if all GIDs of the HCAs that open belong to another network namespace. This detects a container that has
// device nodes and no netdev. iWARP does not count: its GID is no address.
bool has_nodes_only(const Inventory& inventory, const Decision& decision) {
  if (decision.uses([](const PortReport&) { return true; })) return false;
  GidFilter filter;
  filter.node_gids = false;
  const auto candidates = find_candidates(inventory, filter);
  return std::ranges::none_of(candidates, &Candidate::usable) &&
         std::ranges::find(candidates, Obstacle::kForeign, &Candidate::obstacle) != candidates.end();
}

// Checks RDMA_CM. RDMA_CM needs the device node rdma_cm, and an address of the HCA's netdev in this network namespace.
std::optional<Check> check_rdma_cm(const Inventory& inventory, const Decision& decision) {
  if (has_nodes_only(inventory, decision)) {
    return Check{
        "rdma_cm", Verdict::kNote,
        "RDMA_CM finds no RDMA device for the addresses here: the HCAs have addresses of another network namespace",
        "use the host's network and address, or add rails to the container"};
  }
  if (decision.status == Status::kNone) return std::nullopt;
  if (inventory.rdma_cm == false) {
    return Check{"rdma_cm", Verdict::kNote,
                 "no /dev/infiniband/rdma_cm: programs that connect by RDMA_CM will fail, NCCL does not need it",
                 "load rdma_ucm on the node, and add the device node to the container if this is one"};
  }
  const bool infiniband = decision.uses([](const PortReport& port) { return port.link_layer == "InfiniBand"; });
  const bool ipoib = std::ranges::any_of(inventory.netdevs, [](const Netdev& netdev) {
    return netdev.is_here() && netdev.type == 32 && netdev.is_up() && !netdev.addresses.empty();
  });
  if (!infiniband || ipoib) return std::nullopt;
  return Check{"rdma_cm", Verdict::kNote,
               "no IPoIB netdev of this network namespace is up and has an address: RDMA_CM cannot resolve addresses; "
               "NCCL does not need it"};
}

std::optional<Check> check_lag(const Settings& settings, const Decision& decision) {
  // The HCA of a LAG is called mlx5_bond_N (by mlx5_ib).
  const bool lag = decision.uses([](const PortReport& port) { return port.device.find("bond") != std::string::npos; });
  if (!lag || find_setting(settings, "NCCL_IB_QPS_PER_CONNECTION")) return std::nullopt;
  return Check{"lag", Verdict::kSlow, "RoCE LAG: one queue pair uses one leg of the bond only",
               "try NCCL_IB_QPS_PER_CONNECTION=2 or more"};
}

// Checks whether used ports of two HCAs have one address, as those of the slaves of a bond of mode balance-xor. RDMA_CM
// binds a connection or listener of an address to the first device that has the address (cma_acquire_dev_by_src_ip()
// and cma_add_one() of drivers/infiniband/core/cma.c, Linux 6.12): the one that was registered first, which has the
// lower uverbsN unless a driver was loaded anew. A listener of all addresses listens on each device.
std::optional<Check> check_shared_address(const Inventory& inventory, const Decision& decision) {
  std::vector<Candidate> used = find_candidates(inventory, {});
  std::erase_if(used,
                [&](const Candidate& one) { return !decision.uses(one) || !one.best() || one.best()->netdev.empty(); });
  const auto shares = [&](const Candidate& one) {
    return std::ranges::find_if(used, [&](const Candidate& other) {
      return one.hca != other.hca && one.best()->gid == other.best()->gid && one.best()->netdev == other.best()->netdev;
    });
  };
  const auto first = std::ranges::find_if(used, [&](const Candidate& one) { return shares(one) != used.end(); });
  if (first == used.end()) return std::nullopt;
  const auto second = shares(*first);
  const bool is_first = first->hca->uverbs.value_or(0) <= second->hca->uverbs.value_or(0);
  return Check{"address", Verdict::kNote,
               fmt::format("{} and {} have one address, {} of {}: the switch selects the port of a packet, and a "
                           "packet that reaches the other HCA is lost; RDMA_CM binds this address to the HCA that was "
                           "registered first, usually {}",
                           printable(first->name()), printable(second->name()), to_string(first->best()->gid),
                           printable(first->best()->netdev), printable((is_first ? first : second)->hca->name)),
               "use one of them (`--hca`), or take the netdevs out of the bond and assign an address to each"};
}

// Returns the addresses of the GIDs that used RoCE ports have here, with their netdevs.
std::vector<NetdevAddress> used_rails(const Inventory& inventory, const Decision& decision) {
  std::vector<NetdevAddress> rails = netdev_addresses(inventory);
  std::erase_if(rails, [&](const NetdevAddress& rail) {
    return !rail.own->prefix || rail.own->address.is_link_local() ||
           !decision.uses([&](const PortReport& port) { return port.gid == rail.own->address; });
  });
  return rails;
}

// Returns true if a route of the rail's netdev leads to the address, in any table: the rule of a rail's address selects
// its table. The kernel finds the MAC address of a RoCE peer by such a route (addr_resolve() of
// drivers/infiniband/core/addr.c, Linux 6.12).
bool has_route(const std::vector<fabric::Route>& routes, const NetdevAddress& rail, const fabric::Address& address) {
  return std::ranges::any_of(routes, [&](const fabric::Route& route) {
    const auto network = fabric::parse_cidr(route.dst);
    return route.dev == rail.netdev->name && (!network || network->contains(address));
  });
}

// Checks whether a rail has no route to the subnet of another rail. Returns no check unless the routes have that of
// each rail's own subnet, so that they are complete.
std::optional<Check> check_routes(const Inventory& inventory, const Settings& settings, const Decision& decision) {
  const Setting* crosses = find_setting(settings, "NCCL_CROSS_NIC");
  if (!inventory.routes || (crosses && crosses->value == "0")) return std::nullopt;
  const auto rails = used_rails(inventory, decision);
  for (const NetdevAddress& rail : rails)
    if (!has_route(*inventory.routes, rail, rail.own->address)) return std::nullopt;
  for (const NetdevAddress& from : rails) {
    for (const NetdevAddress& to : rails) {
      if (from.own->address.family() != to.own->address.family()) continue;
      if (has_route(*inventory.routes, from, to.own->address)) continue;
      return Check{"rail-routes", Verdict::kNote,
                   fmt::format("{} has no route to the network of {} ({}): such rails reach only rails of their own "
                               "network",
                               printable(from.netdev->name), printable(to.netdev->name), to.own->text),
                   "set NCCL_CROSS_NIC=0 and leave PXN on, or add routes between the rails"};
    }
  }
  return std::nullopt;
}

// Returns true if a port with a right provider would be used: it is as fast as a used port, and no list excludes it.
bool is_wanted(const Candidate& candidate, const Settings& settings, const Policy& policy, const Decision& decision) {
  if (policy.hcas && !selects(*policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs)) return false;
  const Setting* kept = find_setting(settings, "NCCL_IB_HCA");
  if (kept && !nccl::parse_hca_list(kept->value).matches(candidate.hca->name, candidate.port->number)) return false;
  return decision.status == Status::kNone ||
         decision.uses([&](const PortReport& port) { return port.rate_gbps <= candidate.rate(); });
}

// Ports with the same texts share a row.
struct Row {
  std::vector<std::string> names;
  std::array<std::string, 4> cells;  // use, link layer, rate, reason
  std::string remedy;
};

// Returns the rows of the table of ports, in the order of their first ports. all: also the used ports.
std::vector<Row> rows_of(const std::vector<PortReport>& ports, bool all) {
  std::vector<Row> rows;
  for (const PortReport& port : ports) {
    if (port.used && !all) continue;
    Row row{{fmt::format("{}:{}", printable(port.device), port.port)},
            {port.used ? "used" : "not used", printable(port.link_layer),
             port.rate_gbps > 0 ? fmt::format("{:g} Gb/s", port.rate_gbps) : "no rate",
             port.reason + (port.rail ? "; " + to_string(*port.rail) : "")},
            port.remedy};
    const auto alike = std::ranges::find_if(
        rows, [&](const Row& other) { return other.cells == row.cells && other.remedy == row.remedy; });
    if (alike == rows.end()) {
      rows.push_back(std::move(row));
    } else {
      alike->names.push_back(std::move(row.names.front()));
    }
  }
  return rows;
}

// Returns the checks in the order of attention: that of the ports, which is the first, then what breaks the job, makes
// it slow, is odd with and without a remedy, and is good.
std::vector<Check> by_attention(const std::vector<Check>& checks) {
  constexpr std::array kPlaces = {5, 3, 2, 1};  // by Verdict
  constexpr int kWithoutRemedy = 4;
  std::vector<Check> sorted;
  for (int place = 0; place <= kPlaces.front(); ++place) {
    for (const Check& check : checks) {
      const bool is_fact = check.verdict == Verdict::kNote && check.remedy.empty();
      const int own = is_fact ? kWithoutRemedy : kPlaces[static_cast<std::size_t>(check.verdict)];
      if ((&check == &checks.front() ? 0 : own) == place) sorted.push_back(check);
    }
  }
  return sorted;
}

// Returns the table of ports. Each column has the width of its widest text; names are limited, so that a long one takes
// no space from the other rows. A row for several ports has their names in lines before it. A remedy follows its row,
// or the table if several rows share it. A remedy that one of the checks has is not repeated.
std::string ports_text(const Decision& decision, const std::vector<Check>& checks, bool all) {
  constexpr std::size_t kWidestName = 20;
  const std::vector<Row> rows = rows_of(decision.ports, all);
  if (rows.empty() && !all) return {};
  std::array<std::size_t, 3> widths{};
  std::size_t indent = 0;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], row.cells[i].size());
    for (const std::string& name : row.names)
      indent = std::max(indent, std::min(name.size(), kWidestName) + 4);
  }
  std::string text = "\nPorts\n";
  std::vector<std::pair<std::string_view, std::size_t>> shared;  // remedies of several rows, with the number of ports
  for (const Row& row : rows) {
    const auto& [use, link_layer, rate, reason] = row.cells;
    const bool one = row.names.size() == 1;
    if (!one) text += base::help_lines({}, base::join(row.names, ", "), 2);
    text += base::help_lines(
        one ? "  " + row.names.front() : "",
        fmt::format("{:<{}}  {:<{}}  {:>{}}  {}", use, widths[0], link_layer, widths[1], rate, widths[2], reason),
        indent);
    if (row.remedy.empty() || std::ranges::find(checks, row.remedy, &Check::remedy) != checks.end()) continue;
    if (std::ranges::count(rows, row.remedy, &Row::remedy) == 1) {
      text += base::help_lines({}, "remedy: " + row.remedy, indent);
      continue;
    }
    auto known = std::ranges::find(shared, row.remedy, &std::pair<std::string_view, std::size_t>::first);
    if (known == shared.end()) known = shared.insert(known, {row.remedy, 0});
    known->second += row.names.size();
  }
  for (const auto& [remedy, ports] : shared)
    text += base::help_lines(fmt::format("  {} ports:", ports), fmt::format("remedy: {}", remedy), indent);
  return rows.empty() ? text + "  none\n" : text;
}

// Returns the lines of the variables. NAME=VALUE is never wrapped, because users copy it. Source and problem of a value
// that is set already are wrapped.
std::string variables_text(const Decision& decision) {
  std::string text = "\nExported\n";
  for (const auto& [name, value] : decision.env)
    text += fmt::format("  {}={}\n", name, printable(value));
  if (decision.env.empty()) text += "  nothing\n";
  if (!decision.kept.empty()) text += "\nSet already\n";
  for (const auto& [name, value] : decision.kept) {
    const std::string left = fmt::format("  {}={}", printable(name), printable(value.value));
    const std::string about =
        fmt::format("({}){}", printable(value.source), value.problem ? ": " + *value.problem : "");
    // A left part that does not end before the column gets a line of its own.
    const bool fits = left.size() + 1 + about.size() <= base::kHelpWidth;
    text += base::help_lines(left, about, fits ? left.size() + 1 : 6);
  }
  return text;
}

// Returns the verdict of the first line.
std::string verdict_text(const Decision& decision, const std::vector<Check>& checks) {
  if (!is_fit(checks)) return "NOT fit for RDMA";
  if (decision.unused_rails != 0) {
    return fmt::format("fit, but {} of {} equal rails {} not used", decision.unused_rails, decision.equal_rails,
                       decision.unused_rails == 1 ? "is" : "are");
  }
  const auto is_off = [](const Check& check) { return check.name == "rdma-off" || check.name == "beside-efa"; };
  if (std::ranges::any_of(checks, is_off)) return "fit, but a library uses no RDMA";
  const bool is_slow = std::ranges::find(checks, Verdict::kSlow, &Check::verdict) != checks.end();
  return is_slow ? "fit for RDMA, but slow" : "fit for RDMA";
}

}  // namespace

std::vector<Check> check_up(const Inventory& inventory, const Settings& settings, const Decision& decision) {
  std::vector<Check> checks;
  checks.push_back(check_ports(decision));
  if (decision.refusal) checks.push_back({"refusal", Verdict::kBad, *decision.refusal, decision.refusal_remedy});
  for (const auto* more : {&decision.warnings, &decision.asides, &decision.remarks})
    checks.insert(checks.end(), more->begin(), more->end());
  checks.push_back(check_memlock(inventory.limits.value_or(fabric::Limits{})));
  checks.push_back(check_bootstrap(inventory, settings, decision));
  if (auto check = check_rdma_cm(inventory, decision)) checks.push_back(std::move(*check));
  if (auto check = check_lag(settings, decision)) checks.push_back(std::move(*check));
  if (auto check = check_shared_address(inventory, decision)) checks.push_back(std::move(*check));
  if (auto check = check_routes(inventory, settings, decision)) checks.push_back(std::move(*check));
  return checks;
}

std::vector<Check> check_providers(const Inventory& inventory, const Settings& settings, const Policy& policy,
                                   const Decision& decision) {
  std::vector<Check> checks;
  if (decision.remedy == kProviderRemedy || decision.refusal_remedy == kProviderRemedy) return checks;
  std::vector<std::string> ports;  // the ports of each check
  for (const Candidate& candidate : find_candidates(inventory, policy.gids)) {
    if (candidate.obstacle != Obstacle::kProvider) continue;
    auto check = std::ranges::find(checks, candidate.reason, &Check::message);
    if (check == checks.end()) {
      check = checks.insert(check, {"provider", Verdict::kNote, candidate.reason, candidate.remedy});
      ports.emplace_back();
    }
    std::string& names = ports[static_cast<std::size_t>(check - checks.begin())];
    names += (names.empty() ? "" : ", ") + printable(candidate.name());
    if (is_wanted(candidate, settings, policy, decision)) check->verdict = Verdict::kBad;
  }
  for (std::size_t i = 0; i < checks.size(); ++i)
    checks[i].message.insert(0, ports[i] + ": ");
  return checks;
}

bool is_fit(const std::vector<Check>& checks) {
  return std::ranges::find(checks, Verdict::kBad, &Check::verdict) == checks.end();
}

std::string doctor_text(const Decision& decision, const std::vector<Check>& found, bool all) {
  constexpr std::array kMarks = {"  ok", "  note", "  slow", "  BAD"};
  constexpr long kFewLines = 9;  // with the last lines, the report of a container without fault has at most 12
  const std::vector<Check> checks = by_attention(found);
  std::string text = fmt::format("rdma-init {}: {}", RDMA_INIT_VERSION, verdict_text(decision, checks));
  text = base::wrapped(text) + "\nChecks\n";
  std::size_t good = 0;   // the hidden checks without a fault
  std::size_t notes = 0;  // the hidden notes
  bool has_note = false;
  for (const Check& check : checks) {
    // The refusal of --require ends with the same cause.
    if (check.name == "ports" && decision.refusal && decision.refusal->ends_with(check.message)) continue;
    std::string lines = base::help_lines(kMarks[static_cast<std::size_t>(check.verdict)], check.message, 8);
    if (!check.remedy.empty()) lines += base::help_lines({}, "remedy: " + check.remedy, 8);
    const auto count = std::ranges::count(text, '\n') + std::ranges::count(lines, '\n');
    const bool is_note = check.verdict == Verdict::kNote;
    const bool is_shown = all || check.verdict >= Verdict::kSlow || check.name == "ports" ||
                          (is_note && (!has_note || count <= kFewLines));
    has_note |= is_note;
    if (is_shown)
      text += lines;
    else
      ++(is_note ? notes : good);
  }
  const bool fit = is_fit(checks);
  if (all || !fit || decision.unused_rails != 0) text += ports_text(decision, checks, all);
  if (all) text += variables_text(decision);
  const bool is_used = decision.uses([](const PortReport&) { return true; });
  if (fit && is_used) text += "\nNot tested: the fabric. rdma-ping tests it between the ranks of a job.\n";
  if (!all) {
    const std::string odd = notes == 0 ? "" : fmt::format("{} more note{}, ", notes, notes == 1 ? "" : "s");
    text += fmt::format("With --all: {}{} check{} without a fault, all ports and the variables.\n", odd, good,
                        good == 1 ? "" : "s");
  }
  return text;
}

std::string doctor_json(const Decision& decision, const std::vector<Check>& checks) {
  constexpr std::array kNames = {"good", "note", "slow", "bad"};
  nlohmann::ordered_json json;
  json["fit"] = is_fit(checks);
  json["checks"] = nlohmann::ordered_json::array();
  for (const Check& check : by_attention(checks)) {
    json["checks"].push_back({{"name", check.name},
                              {"verdict", kNames[static_cast<std::size_t>(check.verdict)]},
                              {"message", check.message},
                              {"remedy", check.remedy}});
  }
  json.update(decision_json(decision));
  return dump_json(json);
}

}  // namespace init
