#include "hook/admin/doctor/doctor.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "base/columns.hpp"
#include "base/json/json.hpp"
#include "base/process/query_program.hpp"
#include "base/process/sandbox.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "fabric/nccl_marks.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

using fabric::Inventory;

void append(std::vector<Check> more, std::vector<Check>& checks) {
  std::ranges::move(more, std::back_inserter(checks));
}

// Reads the configuration as far as possible and returns its problems.
// If a file cannot be read, the other files are not parsed: names that the unreadable file defines would be reported as
// unknown.
Check check_config(const NodeSettings& node, Config& config) {
  ConfigPaths paths = node.config;
  if (!paths.file_must_exist && !node.root.empty()) paths = config_paths_below(node.root);
  const ConfigFiles files = read_config_files(paths);
  ParsedConfig parsed;
  parsed.problems = files.problems;
  if (files.problems.empty()) parsed = parse_config(files.texts);
  config = std::move(parsed.config);
  Check check{"config",
              files.texts.empty() ? "no file: one pool of all HCAs"
                                  : fmt::format("{} file{}", files.texts.size(), files.texts.size() == 1 ? "" : "s"),
              {}};
  for (const ConfigProblem& problem : parsed.problems)
    check.add(problem.is_error ? Grade::kBroken : Grade::kWarning,
              problem.line == 0 ? problem.file : fmt::format("{}:{}", problem.file, problem.line), problem.message,
              problem.remedy);
  return check;
}

// Returns the sources of the node's index. The addresses of netdevs are known on a live node, by netlink, and in a
// snapshot, which records them. A tree of files below a root directory has no addresses.
NodeIndexSources index_sources(const NodeSettings& node) {
  NodeIndexSources sources;
  if (!node.snapshot || !node.root.empty()) sources.root = node.root;
  sources.knows_addresses = node.snapshot || node.root.empty();
  if (const char* name = std::getenv(kNodeName); name && sources.knows_addresses && !node.snapshot) sources.name = name;
  return sources;
}

// Returns the present names of HCAs by their identity in the ledger; empty if the node cannot be read. check_ledger()
// compares them with the names in grants to find renamed HCAs.
std::map<std::string, std::vector<std::string>> names_by_device(const NodeSettings& node, const Config& config) {
  std::map<std::string, std::vector<std::string>> by_device;
  const auto inventory = read_whole_node(config, node);
  if (!inventory) return by_device;
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory->hcas)
    names.push_back(hca.name);
  for (const auto& [name, device] : devices_of(names, *inventory, node.root).devices)
    by_device[device].push_back(name);
  return by_device;
}

// Returns the result of a check that was not made. `looked` is false, so that programs that read the JSON do not take
// it for success.
Check not_looked_at(const char* name, std::string why) {
  return {name, std::move(why), {}, false};
}

// Returns netdev and traffic classes of active RoCE HCAs in pools. Software HCAs are left out because they have no flow
// control.
std::vector<RailQos> roce_rails(const Inventory& inventory, const Config& config) {
  std::vector<RailQos> rails;
  const NodeMap map(inventory, config);
  for (const NodeHca* node : map.by_rail()) {
    if (!node->pool || !node->netdev || !node->is_active() || node->is_infiniband() || node->hca->is_software())
      continue;
    // A container may request any network. The value of its network replaces that of the pool.
    std::set<unsigned> classes;
    const auto add = [&](const SiteValues& env) {
      const auto value = env.find("NCCL_IB_TC");
      if (value != env.end()) classes.insert(fabric::nccl_marks(value->second, {}).traffic_class);
    };
    bool has_own = node->pool->network.has_value();
    for (const auto& [name, network] : config.networks) {
      if (network.pool && *network.pool != node->pool->name) continue;
      add(network.env);
      has_own = has_own && network.env.contains("NCCL_IB_TC");
    }
    if (!has_own) add(node->pool->env);
    RailQos& rail = rails.emplace_back(RailQos{*node->netdev, {}, {}, {}, node->name()});
    for (const unsigned one : classes)
      rail.marks.push_back({one});
  }
  return rails;
}

std::vector<Finding> check_kinds(const Inventory& inventory, const Config& config) {
  std::vector<Finding> findings;
  const NodeMap map(inventory, config);
  for (const NodeHca* node : other_kinds_of(map)) {
    findings.push_back(
        {Grade::kNote, node->name(),
         fmt::format("differs in rate or link layer from most HCAs of pool `{}`: Kubernetes does not count it "
                     "as `{}`",
                     node->pool->name, *node->pool->resource),
         "to count it, add a separate pool with \"selectors\""});
  }
  return findings;
}

// Returns the active_mtu of each port, from the output of ibv_devinfo: no other source has it. Returns an empty map for
// a snapshot or without HCAs, and if the program is missing or fails.
ActiveMtus query_active_mtus(const NodeSettings& node, const Inventory& inventory, std::vector<Error>& unasked) {
  const auto program = node.snapshot || inventory.hcas.empty() ? std::nullopt : find_program(node.root, "ibv_devinfo");
  if (!program) return {};
  const auto answer = query_program(node.root, {*program});
  if (!answer) unasked.push_back(answer.error());
  return answer ? parse_ibv_devinfo(answer->text) : ActiveMtus();
}

const char* mark(Grade grade) {
  return grade == Grade::kNote ? "note" : grade == Grade::kWarning ? "warning" : "BROKEN";
}

constexpr std::size_t kTextColumn = 21;

void add_line(std::string_view what, std::string_view name, std::string_view text, std::string& out) {
  out += fmt::format("  {:<7}  {:<9} ", what, name);
  add_wrapped(text, kTextColumn, kTextColumn, out);
}

// Returns the number of findings with this grade. Findings that merge_alike() merges into one line count separately.
std::size_t count(const std::vector<Check>& checks, Grade grade) {
  std::size_t number = 0;
  for (const Check& check : checks)
    number += static_cast<std::size_t>(
        std::ranges::count_if(check.findings, [&](const Finding& one) { return one.grade == grade; }));
  return number;
}

// Merges findings with the same message into one line that lists their objects.
std::vector<Finding> merge_alike(const std::vector<Finding>& findings) {
  std::vector<Finding> merged;
  for (const Finding& finding : findings) {
    const auto same = std::ranges::find_if(merged, [&](const Finding& one) {
      return one.grade == finding.grade && one.message == finding.message && one.remedy == finding.remedy;
    });
    if (same == merged.end()) {
      merged.push_back(finding);
    } else {
      same->object += ", " + finding.object;
    }
  }
  return merged;
}

// Reads the facts of the ledger. The default path of the ledger is below the node's root; a path of --ledger is used as
// it is.
LedgerFacts ledger_of(const NodeSettings& node, const Config& config, const Inventory& inventory) {
  LedgerFacts facts = read_ledger_facts(ledger_path(node), node.root);
  if (!node.snapshot) facts.names = names_by_device(node, config);
  facts.moved = moved_gids(facts.gids, inventory);
  return facts;
}

// Returns the checks of the engines, and of Slurm if the node has it. Adds the findings of the configuration that
// depend on the engines. unasked: errors of programs that earlier checks could not execute.
std::vector<Check> check_all_engines(const NodeSettings& node, const Config& config, std::vector<Error> unasked,
                                     Check& of_config) {
  NodeEngines engines = read_node_engines(node.root);
  engines.is_expected = node.is_installed;
  for (Finding& finding : check_rail_tests(engines, config))
    of_config.add(std::move(finding));
  std::ranges::move(unasked, std::back_inserter(engines.unasked));
  std::vector<Check> checks = check_engines(engines);
  if (const auto slurm = read_slurm_facts(node.root)) checks.push_back(check_slurm(*slurm));
  return checks;
}

// Returns the check "expect" if a pool has that member.
std::vector<Check> check_complete(const NodeSettings& node, const Config& config) {
  if (std::ranges::none_of(config.pools, [](const Pool& pool) { return pool.expect.has_value(); })) return {};
  const auto counts = read_pool_counts(node, config);
  if (!counts)
    return {{"expect", {}, {{Grade::kWarning, "pools", counts.error().message, base::remedy_of(counts.error())}}}};
  return {{"expect", "each pool has the expected number of usable HCAs", check_expected(*counts)}};
}

// Adds the findings of the configuration that depend on the node.
void add_config_findings(const Inventory& inventory, const Config& config, const NodeSettings& node, bool files,
                         Check& of_config) {
  const auto add = [&](std::vector<Finding> more) {
    for (Finding& finding : more)
      of_config.add(std::move(finding));
  };
  add(check_node_index(inventory, config, index_sources(node)));
  add(check_vf_ranges(inventory, config));
  add(check_kinds(inventory, config));
  add(check_rdma_limits(inventory, config, files ? std::optional(rdma_controller(node.root)) : std::nullopt));
}

}  // namespace

std::vector<Check> examine_node(const NodeSettings& node) {
  const bool files = !node.snapshot || !node.root.empty();
  std::vector<Check> checks;
  Config config;
  Check of_config = check_config(node, config);
  auto read = node.snapshot ? fabric::read_snapshot(*node.snapshot)
                            : Result<Inventory>(fabric::read_inventory({.root = node.root, .full = true}));
  if (!read) {
    Finding finding{Grade::kBroken, *node.snapshot, read.error().message, base::remedy_of(read.error())};
    return {Check{"snapshot", {}, {std::move(finding)}}};
  }
  Inventory& inventory = *read;
  static_cast<void>(note_away_hcas(node, nullptr, inventory));  // check_ledger() reports a ledger that cannot be read
  // With a root directory, all facts come from files below it. Netlink would report the routes of this machine.
  if (!node.snapshot && !node.root.empty()) inventory.routes.reset();
  if (files) {
    append(check_kernel(fabric::read_kernel_facts(node.root, inventory), inventory, config), checks);
  } else {
    checks.push_back(not_looked_at("modules", "a snapshot has no modules and no modes of device nodes"));
  }
  std::vector<Error> unasked;
  // If the node has no HCA, check_kernel() reports the cause, and the checks of rails have nothing to add.
  if (!inventory.hcas.empty())
    append(check_rails(inventory, config, query_active_mtus(node, inventory, unasked)), checks);
  append(check_complete(node, config), checks);
  if (files) {
    checks.push_back(check_qos(read_qos(node.root, roce_rails(inventory, config), unasked)));
    append(check_gpus(fabric::read_gpu_facts(node.root, inventory), inventory), checks);
    append(check_all_engines(node, config, std::move(unasked), of_config), checks);
  } else {
    checks.push_back(not_looked_at("engine", "a snapshot has no engines, GPU drivers or PCI bridges"));
  }
  add_config_findings(inventory, config, node, files, of_config);
  checks.push_back(std::move(of_config));
  if (files || node.ledger != kLedgerPath) {
    Check& ledger = checks.emplace_back(check_ledger(ledger_of(node, config, inventory)));
    for (const fabric::Hca& hca : inventory.away)
      if (hca.name.empty())
        ledger.add(Grade::kWarning, *hca.pci, "a container may have this HCA: its entry in the ledger cannot be read",
                   "run `rdma-hook recover`");
  } else {
    checks.push_back(not_looked_at("ledger", "not checked: this node's ledger does not belong to the snapshot"));
  }
  return checks;
}

std::optional<Grade> worst(const std::vector<Check>& checks) {
  std::optional<Grade> worst;
  for (const Check& check : checks)
    for (const Finding& finding : check.findings)
      if (finding.grade != Grade::kNote) worst = std::max(worst.value_or(Grade::kNote), finding.grade);
  return worst;
}

std::string findings_text(const std::vector<Check>& checks, bool quiet) {
  constexpr std::size_t kMostShown = 8;  // a node can have thousands of VFs
  std::string lines;
  for (const Check& check : checks) {
    std::size_t shown = 0;
    if (check.findings.empty() && !quiet) add_line(check.looked ? "ok" : "-", check.name, check.summary, lines);
    for (const Finding& finding : merge_alike(check.findings)) {
      // If the list is shortened, the number of hidden findings is printed after it, so that the list does not seem
      // complete.
      if ((quiet && finding.grade == Grade::kNote) || ++shown > kMostShown) continue;
      // Messages quote names of devices, files and engines. This is foreign text, which must not control the terminal.
      const std::string what = base::one_line(fmt::format("{}: {}", finding.object, finding.message));
      add_line(mark(finding.grade), check.name, what, lines);
      if (finding.remedy.empty()) continue;
      lines += std::string(kTextColumn, ' ');
      add_wrapped("remedy: " + base::one_line(finding.remedy), kTextColumn, kTextColumn + 2, lines);
    }
    if (shown > kMostShown) add_line("", "", fmt::format("and {} more; --json lists all", shown - kMostShown), lines);
  }
  if (quiet) return lines;
  const std::size_t broken = count(checks, Grade::kBroken);
  const std::size_t warnings = count(checks, Grade::kWarning);
  const std::string verdict = broken + warnings == 0
                                  ? "no problem found"
                                  : fmt::format("{} broken, {} warning{}", broken, warnings, warnings == 1 ? "" : "s");
  return fmt::format("rdma-hook {}: {}\n\n{}", RDMA_INIT_VERSION, verdict, lines);
}

std::string findings_json(const std::vector<Check>& checks) {
  constexpr const char* kGrades[] = {"note", "warning", "broken"};
  const auto grade = worst(checks);
  Json list = Json::array();
  for (const Check& check : checks) {
    Json findings = Json::array();
    for (const Finding& finding : check.findings) {
      findings.push_back({{"grade", kGrades[static_cast<std::size_t>(finding.grade)]},
                          {"object", finding.object},
                          {"message", finding.message},
                          {"remedy", finding.remedy}});
    }
    list.push_back({{"name", check.name},
                    {"looked", check.looked},
                    {"summary", check.summary},
                    {"findings", std::move(findings)}});
  }
  const Json json{{"verdict", !grade                     ? "ok"
                              : *grade == Grade::kBroken ? "broken"
                                                         : "warnings"},
                  {"version", RDMA_INIT_VERSION},
                  {"checks", std::move(list)}};
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace hook
