#include "golden/golden_case.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "base/text.hpp"
#include "support/temp_dir.hpp"

namespace golden {
namespace {

using test_support::read_file;

using Problems = std::map<std::string, std::optional<std::string>>;

std::optional<std::string> text_or_null(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

Problems problems_of(const Json& json) {
  Problems problems;
  for (const auto& [name, value] : json.items())
    problems[name] = text_or_null(value);
  return problems;
}

std::vector<std::string> texts(const Json& json, const char* key) {
  return json.value(key, std::vector<std::string>());
}

// Text, {"repeat": text, "times": n}, or a list of such parts.
std::string text_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  std::string text;
  if (json.is_array()) {
    for (const Json& part : json)
      text += text_of(part);
    return text;
  }
  const std::string unit = text_of(json.at("repeat"));
  for (auto times = json.at("times").get<std::size_t>(); times > 0; --times)
    text += unit;
  return text;
}

// Returns the snapshot of a case, with its changes.
Json read_snapshot(const Json& json, const std::string& directory) {
  const Json& snapshot = json.at("snapshot");
  Json machine = snapshot.is_string()
                     ? Json::parse(read_file(directory + "/../snapshots/" + snapshot.get<std::string>() + ".json"))
                     : snapshot;
  return json.contains("change") ? machine.patch(json["change"]) : machine;
}

void read_machine(const Json& json, const std::string& directory, Case& one) {
  one.snapshot = read_snapshot(json, directory);
  if (json.contains("fit")) one.fit = json["fit"].get<bool>();
  one.causes = texts(json, "causes");
  one.report = texts(json, "report");
  one.not_in_report = texts(json, "not_in_report");
  Expectation expected;
  expected.status = json.at("status").get<std::string>();
  expected.env = problems_of(json.at("env"));
  if (json.contains("kept")) expected.kept = problems_of(json["kept"]);
  if (json.contains("warnings")) expected.warnings = texts(json, "warnings");
  if (json.contains("ports")) expected.ports = json["ports"];
  one.expected = std::move(expected);
  one.not_as_tree = json.value("not_as_tree", std::string());
}

void read_command(const Json& json, const std::string& directory, Case& one) {
  one.args = texts(json, "argv");
  if (json.contains("snapshot")) one.snapshot = read_snapshot(json, directory);
  const Json files = json.value("files", Json::object());
  for (const auto& [name, content] : files.items())
    one.files[name] = text_of(content);
  const Json environment = json.value("environment", Json::object());
  for (const auto& [name, value] : environment.items())
    one.environment[name] = text_of(value);
  if (json.contains("stdin")) one.input = text_of(json["stdin"]);
  if (json.contains("stdout")) one.stdout_text = json["stdout"].get<std::string>();
  one.stdout_parts = texts(json, "stdout_parts");
  one.not_in_stdout = texts(json, "not_in_stdout");
}

// {"ideal": {"status", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "also"?}}
Case read_fixture(const std::string& path) {
  constexpr std::string_view kSuffix = ".expect.json";
  const Json ideal = Json::parse(read_file(path)).at("ideal");
  Case one;
  one.snapshot = Json::parse(read_file(path.substr(0, path.size() - kSuffix.size()) + ".json"));
  Expectation expected;
  expected.status = ideal.at("status").get<std::string>();
  expected.whole_env = false;
  expected.env["NCCL_IB_HCA"] = text_or_null(ideal.at("NCCL_IB_HCA"));
  const Json& index = ideal.at("NCCL_IB_GID_INDEX");
  expected.env["NCCL_IB_GID_INDEX"] =
      index.is_null() ? std::nullopt : std::optional(std::to_string(index.get<unsigned>()));
  const Json also = ideal.value("also", Json::object());
  for (const auto& [name, value] : also.items()) {
    if (name.starts_with("NCCL_")) expected.env[name] = text_or_null(value);
    if (name == "per_device_gid_index") expected.indices = value.get<std::map<std::string, unsigned>>();
  }
  one.expected = std::move(expected);
  return one;
}

}  // namespace

std::string unwrapped(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\n';
    if (!is_blank || (!line.empty() && line.back() != ' ')) line += is_blank ? ' ' : c;
  }
  return line;
}

Case read_case(const std::string& path) {
  if (path.ends_with(".expect.json")) return read_fixture(path);
  const Json json = Json::parse(read_file(path));
  Case one;
  one.exit_code = json.value("exit", 0);
  one.stderr_parts = texts(json, "stderr");
  const std::string directory = path.substr(0, path.rfind('/'));
  if (json.contains("argv")) {
    read_command(json, directory, one);
  } else {
    one.args = texts(json, "args");
    read_machine(json, directory, one);
  }
  return one;
}

namespace {

using Differences = std::vector<std::string>;

std::string shown(const std::optional<std::string>& value) {
  return value ? fmt::format("`{}`", *value) : "missing";
}

std::set<std::string> items(std::string_view list) {
  if (list.starts_with('=')) list.remove_prefix(1);
  std::set<std::string> set;
  for (const std::string_view item : base::split(list, ','))
    set.emplace(item);
  return set;
}

bool same_value(const std::optional<std::string>& expected, const std::optional<std::string>& got, Source source) {
  if (expected == got || !expected || !got) return expected == got;
  return source == Source::kTree && expected->starts_with('=') == got->starts_with('=') &&
         items(*expected) == items(*got);
}

void compare_env(const Expectation& expected, const Json& answer, Source source, Differences& found) {
  for (const auto& [name, value] : expected.env) {
    std::optional<std::string> got;
    if (answer["env"].contains(name)) got = answer["env"][name].get<std::string>();
    // A list of devices has no order, with any source.
    const bool same =
        name == "NCCL_IB_HCA" && value && got ? same_value(value, got, Source::kTree) : same_value(value, got, source);
    if (!same) found.push_back(fmt::format("env {}: expected {}, got {}", name, shown(value), shown(got)));
  }
  if (!expected.whole_env) return;
  std::set<std::string> used;
  for (const Json& port : answer["ports"])
    if (port["used"] == true) used.insert(port["device"].get<std::string>());
  const std::string devices = answer["env"].value("RDMA_INIT_DEVICES", std::string());
  if (answer["env"].contains("NCCL_IB_HCA") && items(devices) != used)
    found.push_back(fmt::format("RDMA_INIT_DEVICES={} is not the list of the used devices", devices));
  for (const auto& [name, value] : answer["env"].items()) {
    if (name.starts_with("RDMA_INIT_")) continue;
    if (!expected.env.contains(name)) found.push_back(fmt::format("env {}: not expected, got {}", name, value.dump()));
  }
}

void compare_kept(const Expectation& expected, const Json& answer, Differences& found) {
  if (!expected.kept) return;
  for (const auto& [name, problem] : *expected.kept) {
    if (!answer["kept"].contains(name)) {
      found.push_back(fmt::format("kept {}: missing", name));
      continue;
    }
    const Json& got = answer["kept"][name]["problem"];
    const bool same = problem ? got.is_string() && contains(got.get<std::string>(), *problem) : got.is_null();
    if (!same) found.push_back(fmt::format("kept {}: expected problem {}, got {}", name, shown(problem), got.dump()));
  }
  for (const auto& [name, value] : answer["kept"].items())
    if (!expected.kept->contains(name)) found.push_back(fmt::format("kept {}: not expected", name));
}

void compare_warnings(const Expectation& expected, const Json& answer, Differences& found) {
  const bool any = !answer["warnings"].empty();
  if (any != (answer["status"] == "ok_warn"))
    found.push_back(fmt::format("status {} with {} warnings", answer["status"].dump(), answer["warnings"].size()));
  if (!expected.warnings) return;
  bool same = expected.warnings->size() == answer["warnings"].size();
  for (std::size_t i = 0; same && i < expected.warnings->size(); ++i)
    same = contains(answer["warnings"][i].get<std::string>(), (*expected.warnings)[i]);
  if (!same)
    found.push_back(
        fmt::format("warnings: expected {}, got {}", Json(*expected.warnings).dump(), answer["warnings"].dump()));
}

std::string port_name(const Json& port) {
  return fmt::format("{}:{}", port["device"].get<std::string>(), port["port"].get<unsigned>());
}

void compare_port(const std::string& name, const Json& expected, const Json& got, Source source, Differences& found) {
  for (const auto& [key, value] : expected.items()) {
    if (key == "reason" && source == Source::kTree) continue;
    const Json found_value = got.value(key, Json());
    const bool same =
        key == "reason" ? contains(found_value.get<std::string>(), value.get<std::string>()) : found_value == value;
    if (!same)
      found.push_back(fmt::format("port {} {}: expected {}, got {}", name, key, value.dump(), found_value.dump()));
  }
}

void compare_ports(const Expectation& expected, const Json& answer, Source source, Differences& found) {
  std::map<std::string, unsigned> indices;
  std::map<std::string, const Json*> ports;
  for (const Json& port : answer["ports"]) {
    const std::string name = port_name(port);
    if (!ports.emplace(name, &port).second) found.push_back(fmt::format("port {}: listed twice", name));
    if (port["used"] == true && port["gid_index"].is_number()) indices[name] = port["gid_index"].get<unsigned>();
    if (port["reason"].get<std::string>().empty()) found.push_back(fmt::format("port {}: no reason", name));
  }
  for (const auto& [name, port] : expected.ports.items()) {
    if (!ports.contains(name)) {
      found.push_back(fmt::format("port {}: missing", name));
    } else {
      compare_port(name, port, *ports[name], source, found);
    }
  }
  if (expected.indices && *expected.indices != indices)
    found.push_back(fmt::format("indices: expected {}, got {}", Json(*expected.indices).dump(), Json(indices).dump()));
}

}  // namespace

std::vector<std::string> differences(const Expectation& expected, const Json& answer, Source source) {
  Differences found;
  if (answer["status"] != expected.status)
    found.push_back(fmt::format("status: expected {}, got {}", expected.status, answer["status"].dump()));
  compare_env(expected, answer, source, found);
  compare_kept(expected, answer, found);
  compare_warnings(expected, answer, found);
  compare_ports(expected, answer, source, found);
  return found;
}

}  // namespace golden
