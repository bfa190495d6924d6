#include "hook/program/commands.hpp"

#include <cstdio>

#include "base/json/json.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/node_slice.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/node.hpp"

namespace hook {
namespace {

// Adds the problems of the file that lists the nodes.
void check_node_list(const std::string& path, ParsedConfig& parsed) {
  constexpr std::size_t kLongest = 16 << 20;
  const auto text = read_text_file(path, {.bytes = kLongest});
  if (!text) {
    parsed.problems.push_back({path, 0, text.error().message, "pass the file that lists the nodes with --nodes"});
    return;
  }
  auto [problems, warnings] = check_nodes(*text, parsed.config);
  for (std::string& problem : problems)
    parsed.problems.push_back({path, 0, std::move(problem),
                               "correct the list, `node_index` (an object can map names and patterns to numbers), or "
                               "the network's `subnet` and `per_node`"});
  for (std::string& warning : warnings)
    parsed.problems.push_back({path, 0, std::move(warning), kSeveralNumbersRemedy, false});
}

// Adds a warning for each pool that has no HCA of this node. The finding is no error, because one file serves many
// nodes. A node that cannot be read is no problem of the file, except a snapshot that the caller named.
void check_pools_of_node(const NodeSettings& node, ParsedConfig& parsed) {
  const auto inventory = read_whole_node(parsed.config, node);
  if (!inventory) {
    if (node.snapshot)
      parsed.problems.push_back({*node.snapshot, 0, inventory.error().message, base::remedy_of(inventory.error())});
    return;
  }
  for (Finding& finding : check_empty_pools(*inventory, parsed.config))
    parsed.problems.push_back(
        {std::move(finding.object), 0, std::move(finding.message), std::move(finding.remedy), false});
}

}  // namespace

int check_config(const NodeSettings& node, bool json, const std::optional<std::string>& nodes) {
  const ConfigFiles files = read_config_files(node.config);
  ParsedConfig parsed;
  parsed.problems = files.problems;
  // The texts are parsed only if all files were read: otherwise names that a missing file defines would be reported as
  // unknown.
  if (files.problems.empty()) parsed = parse_config(files.texts);
  if (nodes && parsed.ok()) check_node_list(*nodes, parsed);
  if (parsed.ok()) check_pools_of_node(node, parsed);
  const std::string fine = parsed.ok() ? config_summary(files.texts, parsed.config) : "";
  std::string out;
  if (json) {
    const Json whole{{"ok", parsed.ok()}, {"problems", problems_json(parsed.problems)}, {"summary", fine}};
    out = whole.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
  } else {
    for (const ConfigProblem& problem : parsed.problems)
      out += to_string(problem) + "\n";
    if (parsed.ok()) out += "ok: " + fine + "\n";
  }
  // The output goes to stdout even if there are errors, because the problems are the result of this command.
  std::fwrite(out.data(), 1, out.size(), stdout);
  return parsed.ok() ? 0 : 1;
}

}  // namespace hook
