// Any text as a site's variables (env.d, RDMA_INIT_ENV_FILE), besides existing settings.
#include "init/settings.hpp"

#include <algorithm>

#include "fabric/library_variables.hpp"
#include "require.hpp"
#include "same_settings.hpp"

namespace {

using namespace fuzz;

init::Settings read_policy(const std::string& text, const std::string& path, init::Settings settings) {
  return fuzz::read_by_lines(text, path, std::move(settings), [](const std::string& line, const std::string& name) {
    return line.find('\0') == std::string::npos && fabric::is_policy_variable(name);
  });
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const std::string path = data.ConsumeRandomLengthString(20);
  const std::string present = data.ConsumeRandomLengthString(8);
  const std::string first = data.ConsumeRandomLengthString(2000);
  const std::string second = data.ConsumeRemainingBytesAsString();
  init::SitePolicy policy;
  init::add_policy(first, path, policy);
  init::add_policy(second, "/etc/rdma-init/env.d/b.conf", policy);
  const init::Settings expected = read_policy(second, "/etc/rdma-init/env.d/b.conf", read_policy(first, path, {}));
  require(same_settings(policy.settings, expected), "files are read line by line, and the first value counts", second);
  const auto lines = std::count(first.begin(), first.end(), '\n') + std::count(second.begin(), second.end(), '\n') + 2;
  require(policy.problems.size() + policy.settings.size() <= static_cast<std::size_t>(lines), "a line has one outcome");
  for (const std::string& problem : policy.problems)
    fuzz::require_one_line(problem, "a problem of a policy");

  init::Settings settings = init::with_policy({{"NCCL_DEBUG", {present, "environment"}}}, policy);
  require(present.empty() || settings["NCCL_DEBUG"].value == present, "a variable that is set stays", present);
  for (const auto& [name, setting] : settings) {
    if (!setting.of_policy) continue;
    require(fabric::is_policy_variable(name) && !name.starts_with("RDMA_INIT_") && !name.starts_with("LD_"),
            "only variables of the libraries are set", name);
    require(setting.value == policy.settings.at(name).value, "a variable that is set has the policy's value", name);
  }
}
