#include "hook/install/plan_parts.hpp"

#include <cerrno>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"

namespace hook {

using fabric::Error;
using fabric::Result;

Result<std::optional<std::string>> file_of(const EngineFacts& facts, const std::string& path) {
  const auto found = facts.files.find(path);
  if (found == facts.files.end()) return fabric::make_error("`{}` was not read", path);
  return found->second;
}

bool is_nvidia_runtime(std::string_view program) {
  const auto slash = program.rfind('/');
  if (slash != std::string_view::npos) program.remove_prefix(slash + 1);
  return program.starts_with("nvidia-container-runtime");
}

Result<void> add_own_file(InstallPlan& plan, const EngineFacts& facts, const std::string& path,
                          const std::string& text) {
  const auto there = TRY(file_of(facts, path));
  if (there == text) return {};
  if (there) return Error{fmt::format("`{}` is there already", path), EEXIST, "move it away"};
  plan.edits.push_back({path, there, text});
  return {};
}

Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const std::string& program) {
  if (facts.runtimes_are_said) {
    plan.said.push_back(fmt::format(
        "`runtime` is in the configuration of rdma-init already: see that its `runtimes` begin with `{}`", program));
    return {};
  }
  Json runtimes = Json::array({program});
  if (program != "runc") runtimes.push_back("runc");
  const Json json = {{"runtime", {{"runtimes", std::move(runtimes)}}}};
  TRY_VOID(add_own_file(plan, facts, kOwnConfig, json.dump() + "\n"));
  plan.said.push_back(fmt::format("`{}` stays, behind rdma-runtime, by `{}`", program, kOwnConfig));
  return {};
}

}  // namespace hook
