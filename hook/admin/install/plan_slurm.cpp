#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/text.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {
namespace {

// The files in config/slurm, which are compiled into the program: name and text.
constexpr std::pair<std::string_view, std::string_view> kSlurmScripts[] = {
#include "slurm_scripts.inc"
};
constexpr std::string_view kSlurmDirectory = "/etc/slurm/rdma-init/";
constexpr std::string_view kEnrootHook = "99-rdma.sh";

std::string script_path(std::string_view name) {
  return fmt::format("{}{}", name == kEnrootHook ? "/etc/enroot/hooks.d/" : kSlurmDirectory, name);
}

// Returns the text of a script with the directory of this node's programs in its line `rdma_hook=` or `rdma_init=`.
std::string script_text(std::string_view sample, const std::string& programs) {
  constexpr std::string_view kSamplePrograms = "=/usr/bin/";
  std::string text(sample);
  if (const auto at = text.find(kSamplePrograms); at != std::string::npos)
    text.replace(at, kSamplePrograms.size(), "=" + programs + "/");
  return text;
}

// A setting of slurm.conf, the script that it names, and the line with which a site's own script calls it.
struct ScriptSetting {
  const char* setting;
  const char* script;
  const char* call;
  const char* purpose;  // what the line of slurm.conf is for, if not every site needs it; "": every site needs it
};
constexpr ScriptSetting kScriptSettings[] = {
    {"Prolog", "prolog", " || exit 1", ""},
    {"Epilog", "epilog", "", ""},
    {"HealthCheckProgram", "health-check", "",
     ", and a HealthCheckInterval of more than 60, for example 120: Slurm then drains an idle node whose RDMA would "
     "break a job"},
    {"TaskProlog", "task-prolog", " || exit 1", ": steps without a container then get the variables of NCCL"}};

// Adds the lines that the administrator adds to slurm.conf, or to the site's own scripts that slurm.conf names. install
// never changes slurm.conf: it is the site's, and equal on all nodes.
void add_lines(const SlurmNode& slurm, InstallPlan& plan) {
  const SlurmConf& conf = slurm.conf;
  const std::size_t before = plan.messages.size();
  if (!conf.error.empty()) plan.messages.push_back(conf.error + ": add only lines for settings that it does not have");
  for (const auto& [setting, script, call, purpose] : kScriptSettings) {
    const std::string path = script_path(script);
    const auto found = conf.settings.find(in_lower_case(setting));
    if (conf.values.contains(path)) continue;
    if (found == conf.settings.end() || found->second.empty()) {
      plan.messages.push_back(fmt::format("add to `{}`: {}={}{}", conf.path, setting, path, purpose));
    } else {
      const bool is_pattern = found->second.find_first_of("*?[") != std::string::npos;
      plan.messages.push_back(fmt::format("`{}` has {}={}: add to {}: [ ! -x {} ] || {}{}", conf.path, setting,
                                          base::printable(found->second),
                                          is_pattern ? "a script that matches" : "that script", path, path, call));
    }
  }
  if (slurm.memlock != UINT64_MAX)
    plan.messages.emplace_back(
        "add LimitMEMLOCK=infinity to [Service] with `systemctl edit slurmd.service`, then restart slurmd");
  if (propagates_memlock(conf.settings))
    plan.messages.push_back(fmt::format("set in `{}`: {}", conf.path, setting_with_memlock(conf.settings)));
  if (plan.messages.size() > before)
    plan.messages.emplace_back("when all nodes have these files, run on one node: scontrol reconfigure");
}

}  // namespace

std::vector<std::string> slurm_files() {
  std::vector<std::string> files;
  for (const auto& [name, text] : kSlurmScripts)
    files.push_back(script_path(name));
  return files;
}

Result<std::string> check_unused_slurm_files(const std::string& root) {
  const auto conf = read_slurm_conf(root);
  if (!conf) return std::string();
  for (const ScriptSetting& one : kScriptSettings)
    if (const std::string path = script_path(one.script); conf->values.contains(path))
      return Error{fmt::format("`{}` names `{}`: Slurm drains a node without this file", conf->path, path), EBUSY,
                   fmt::format("remove {}={} from it on all nodes, run `scontrol reconfigure`, then run this again",
                               one.setting, path)};
  return conf->error.empty() ? std::string() : conf->error + ": remove lines that name a removed file\n";
}

Result<void> plan_slurm(InstallPlan& plan, const EngineFacts& facts) {
  const bool is_plain = std::ranges::all_of(facts.programs, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+").find(c) != std::string_view::npos;
  });
  if (!is_plain)
    return Error{fmt::format("a shell would interpret characters of `{}`", facts.programs), EINVAL,
                 "name another path of rdma-hook with --hook"};
  for (const auto& [name, sample] : kSlurmScripts)
    if (name != kEnrootHook || facts.slurm->has_enroot)
      TRY_VOID(add_own_file(plan, facts, script_path(name), script_text(sample, facts.programs)));
  add_lines(*facts.slurm, plan);
  return {};
}

}  // namespace hook
