#include "hook/program/commands.hpp"

#include <algorithm>
#include <cstdio>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"

namespace hook {
namespace {

std::string summary(const std::vector<ConfigText>& texts, const Config& config) {
  if (texts.empty()) {
    return "no configuration: one pool of all HCAs, device nodes only, annotations may ask with runc and Docker";
  }
  std::vector<std::string> pools;
  for (const Pool& pool : config.pools) {
    std::vector<std::string> modes;
    for (const Mode mode : pool.modes)
      modes.emplace_back(to_string(mode));
    pools.push_back(fmt::format("{} ({})", fabric::printable(pool.name), fabric::join(modes, ", ")));
  }
  return fmt::format("{} file{}; pools: {}; {} network{}; annotations may ask in: {}", texts.size(),
                     texts.size() == 1 ? "" : "s", pools.empty() ? "all HCAs" : fabric::join(pools, ", "),
                     config.networks.size(), config.networks.size() == 1 ? "" : "s",
                     config.annotations_may_request.empty()
                         ? "no namespace (runc and Docker always)"
                         : fabric::printable(fabric::join(config.annotations_may_request, ", ")));
}

Json problem_json(const ConfigProblem& problem) {
  return {{"file", problem.file},
          {"line", problem.line == 0 ? Json() : Json(problem.line)},
          {"severity", problem.is_error ? "error" : "warning"},
          {"message", problem.message},
          {"remedy", problem.remedy}};
}

// As problems of the file that lists the nodes.
void check_node_list(const std::string& path, ParsedConfig& parsed) {
  constexpr std::size_t kLongest = 16 << 20;
  const auto text = read_text_file(path, {.bytes = kLongest});
  if (!text) {
    parsed.problems.push_back({path, 0, text.error().message, "name the file of the nodes by --nodes"});
    return;
  }
  for (std::string& problem : check_nodes(*text, parsed.config.networks))
    parsed.problems.push_back(
        {path, 0, std::move(problem), "correct the list, or the network's `subnet` and `per_node`"});
}

}  // namespace

int check_config(const ConfigPaths& paths, bool json, const std::optional<std::string>& nodes) {
  const ConfigFiles files = read_config_files(paths);
  ParsedConfig parsed;
  parsed.problems = files.problems;
  // Without all files, names that lead nowhere would be the files' fault.
  if (files.problems.empty()) parsed = parse_config(files.texts);
  if (nodes && parsed.ok()) check_node_list(*nodes, parsed);
  const std::string fine = parsed.ok() ? summary(files.texts, parsed.config) : "";
  std::string out;
  if (json) {
    Json problems = Json::array();
    for (const ConfigProblem& problem : parsed.problems)
      problems.push_back(problem_json(problem));
    out = Json{{"ok", parsed.ok()}, {"problems", std::move(problems)}, {"summary", fine}}.dump(
              2, ' ', false, Json::error_handler_t::replace) +
          "\n";
  } else {
    for (const ConfigProblem& problem : parsed.problems)
      out += to_string(problem) + "\n";
    if (parsed.ok()) out += "ok: " + fine + "\n";
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return parsed.ok() ? 0 : 1;
}

}  // namespace hook
