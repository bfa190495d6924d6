// A site's variables (env.d, RDMA_INIT_ENV_FILE), beside settings that are there.
#include "init/settings.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <sstream>

#include "require.hpp"
#include "same_settings.hpp"

namespace {

using fuzz::require;
using fuzz::same_settings;

// Each value by lines, the first one of a variable.
init::Settings read_by_lines(const std::string& text, const std::string& path, init::Settings settings) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos || line.find('\0') != std::string::npos) continue;
    if (!init::is_policy_variable(line.substr(0, equals))) continue;
    settings.insert({line.substr(0, equals), {line.substr(equals + 1), path}});
  }
  return settings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  FuzzedDataProvider data(bytes, size);
  const std::string path = data.ConsumeRandomLengthString(20);
  const std::string present = data.ConsumeRandomLengthString(8);
  const std::string first = data.ConsumeRandomLengthString(2000);
  const std::string second = data.ConsumeRemainingBytesAsString();
  init::SitePolicy policy;
  init::add_policy(first, path, policy);
  init::add_policy(second, "/etc/rdma-init/env.d/b.conf", policy);
  const init::Settings expected = read_by_lines(second, "/etc/rdma-init/env.d/b.conf", read_by_lines(first, path, {}));
  require(same_settings(policy.settings, expected), "files are read line by line, and the first value counts", second);
  const auto lines = std::count(first.begin(), first.end(), '\n') + std::count(second.begin(), second.end(), '\n') + 2;
  require(policy.problems.size() + policy.settings.size() <= static_cast<std::size_t>(lines), "a line has one outcome");
  for (const std::string& problem : policy.problems)
    fuzz::require_one_line(problem, "a problem of a policy");

  init::Settings settings{{"NCCL_DEBUG", {present, "environment"}}};
  const init::Settings applied = init::apply_policy(policy, settings);
  require(present.empty() || settings["NCCL_DEBUG"].value == present, "what is set stays", present);
  for (const auto& [name, setting] : applied) {
    require(init::is_policy_variable(name) && !name.starts_with("RDMA_INIT_") && !name.starts_with("LD_"),
            "only variables of the libraries are set", name);
    require(settings.at(name).value == setting.value, "what is applied is in the settings", name);
  }
  return 0;
}
