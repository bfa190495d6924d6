#include "golden/golden_case.hpp"

#include <stdexcept>

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

void read_machine(const Json& json, const std::string& directory, Case& one) {
  const Json& snapshot = json.at("snapshot");
  Json machine = snapshot.is_string()
                     ? Json::parse(read_file(directory + "/../snapshots/" + snapshot.get<std::string>() + ".json"))
                     : snapshot;
  if (json.contains("change")) machine = machine.patch(json["change"]);
  one.snapshot = std::move(machine);
  Expectation expected;
  expected.status = json.at("status").get<std::string>();
  expected.env = problems_of(json.at("env"));
  if (json.contains("kept")) expected.kept = problems_of(json["kept"]);
  if (json.contains("warnings")) expected.warnings = texts(json, "warnings");
  if (json.contains("ports")) expected.ports = json["ports"];
  one.expected = std::move(expected);
  one.not_as_tree = json.value("not_as_tree", std::string());
}

void read_command(const Json& json, Case& one) {
  one.args = texts(json, "argv");
  const Json files = json.value("files", Json::object());
  for (const auto& [name, content] : files.items())
    one.files[name] = text_of(content);
  const Json environment = json.value("environment", Json::object());
  for (const auto& [name, value] : environment.items())
    one.environment[name] = text_of(value);
  if (json.contains("stdin")) one.input = text_of(json["stdin"]);
  if (json.contains("stdout")) one.stdout_text = json["stdout"].get<std::string>();
  one.stdout_parts = texts(json, "stdout_parts");
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

Case read_case(const std::string& path) {
  if (path.ends_with(".expect.json")) return read_fixture(path);
  const Json json = Json::parse(read_file(path));
  Case one;
  one.exit_code = json.value("exit", 0);
  one.stderr_parts = texts(json, "stderr");
  if (json.contains("argv")) {
    read_command(json, one);
  } else {
    one.args = texts(json, "args");
    read_machine(json, path.substr(0, path.rfind('/')), one);
  }
  return one;
}

}  // namespace golden
