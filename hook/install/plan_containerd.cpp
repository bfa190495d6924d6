// containerd: of version 2 a drop-in, which it merges key by key; of version 1 lines in the tables that config.toml
// has, and a block of the others at its end, since there an import replaces a plugin's whole table.
#include <algorithm>
#include <cerrno>

#include "fabric/text.hpp"
#include "hook/install/plan_parts.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr const char* kDropIns = "/etc/containerd/conf.d/*.toml";
constexpr const char* kOwnDropIn = "/rdma-init.toml";
constexpr const char* kVerifySpec = "/etc/containerd/rdma-verify.json";
constexpr const char* kHookSpec = "/etc/containerd/rdma-hook.json";
constexpr const char* kRunc = "io.containerd.runc.v2";
constexpr const char* kNriTable = "plugins.'io.containerd.nri.v1.nri'";

struct TomlTable {
  std::string name;
  std::vector<std::pair<std::string, std::string>> members;
};

// The plugin that has the handlers, as the engine prints it.
std::string handlers_of(const EngineFacts& facts) {
  return fmt::format("plugins.'{}'.containerd",
                     facts.engine.major == 1 ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime");
}

std::string default_handler(const EngineFacts& facts) {
  const std::string name = setting_text(facts.settings, handlers_of(facts), "default_runtime_name");
  return name.empty() ? "runc" : name;
}

std::string handler_table(const EngineFacts& facts, const std::string& name) {
  return handlers_of(facts) + ".runtimes." + name;
}

std::string toml_string(std::string_view text) {
  return fmt::format("'{}'", text);
}

// The entries of a list as it is printed; empty where the value is none.
std::string_view inside_brackets(std::string_view list) {
  const bool is_list = list.size() >= 2 && list.front() == '[' && list.back() == ']';
  return is_list ? list.substr(1, list.size() - 2) : std::string_view();
}

// Annotations that reach the containers of a handler: ours, behind those that it has.
std::string annotations_of(const EngineFacts& facts, const std::string& table) {
  std::vector<std::string> all;
  const auto found = facts.settings.find({table, "pod_annotations"});
  const std::string there = found == facts.settings.end() ? "[]" : found->second;
  for (const std::string_view part : fabric::split(inside_brackets(there), ','))
    if (!fabric::trim(part).empty()) all.emplace_back(fabric::trim(part));
  for (const char* ours : {"'rdma-init.io/*'", "'k8s.volcengine.com/*'", "'cni.spidernet.io/*'"})
    if (std::find(all.begin(), all.end(), ours) == all.end()) all.emplace_back(ours);
  return fmt::format("[{}]", fabric::join(all, ", "));
}

// As the default handler has it, since all follow the kubelet's cgroup driver.
std::string systemd_cgroup(const EngineFacts& facts) {
  const auto found = facts.settings.find({handler_table(facts, default_handler(facts)) + ".options", "SystemdCgroup"});
  return found == facts.settings.end() ? "false" : found->second;
}

void add_handler(std::vector<TomlTable>& tables, const EngineFacts& facts, const std::string& name,
                 std::vector<std::pair<std::string, std::string>> members, const std::string& program) {
  const std::string table = handler_table(facts, name);
  members.insert(members.begin(), {"runtime_type", toml_string(kRunc)});
  tables.push_back({table, std::move(members)});
  TomlTable options{table + ".options", {}};
  if (!program.empty()) options.members.emplace_back("BinaryName", toml_string(program));
  options.members.emplace_back("SystemdCgroup", systemd_cgroup(facts));
  tables.push_back(std::move(options));
}

// The handlers whose containers rdma-nri is asked about, and which take a base specification: the default one, and all
// others of runc.
std::vector<std::string> verified_handlers(const EngineFacts& facts) {
  const std::string above = handlers_of(facts) + ".runtimes.";
  std::vector<std::string> names{default_handler(facts)};
  for (const auto& [setting, value] : facts.settings) {
    if (setting.second != "runtime_type" || value != toml_string(kRunc) || !setting.first.starts_with(above)) continue;
    std::string name = setting.first.substr(above.size());
    if (name != names.front() && name.find_first_of("'.") == std::string::npos) names.push_back(std::move(name));
  }
  return names;
}

std::string base_spec_of(const EngineFacts& facts, const std::string& handler) {
  return setting_text(facts.settings, handler_table(facts, handler), "base_runtime_spec");
}

// The default handler as it is, with more members. containerd 1.7 is told all of it, which it else has by itself.
void add_default_handler(std::vector<TomlTable>& tables, const EngineFacts& facts,
                         std::vector<std::pair<std::string, std::string>> members) {
  TomlTable handler{handler_table(facts, default_handler(facts)), std::move(members)};
  TomlTable options{handler.name + ".options", {}};
  if (facts.engine.major == 1) {
    if (!facts.settings.contains({handler.name, "runtime_type"}))
      handler.members.emplace_back("runtime_type", toml_string(kRunc));
    for (const auto& [setting, value] : facts.settings) {
      const std::string& key = setting.second;
      const bool is_ours = std::any_of(handler.members.begin(), handler.members.end(),
                                       [&](const auto& member) { return member.first == key; });
      if (is_empty_setting(value) || is_ours) continue;
      if (setting.first == handler.name) handler.members.emplace_back(setting.second, value);
      if (setting.first == options.name) options.members.emplace_back(setting.second, value);
    }
  }
  tables.push_back(std::move(handler));
  if (!options.members.empty()) tables.push_back(std::move(options));
}

// The handler `rdma` beside rdma-nri, all that the default one is: so that a pod that names the RuntimeClass `rdma`
// starts on each node that is set up, whichever its way, and on no other.
void add_copy_of_default(std::vector<TomlTable>& tables, const EngineFacts& facts) {
  const std::string from = handler_table(facts, default_handler(facts));
  const std::string theirs = base_spec_of(facts, default_handler(facts));
  TomlTable handler{handler_table(facts, "rdma"), {}};
  // Somebody else's: pods may be named after it.
  if (facts.settings.contains({handler.name, "runtime_type"})) return;
  TomlTable options{handler.name + ".options", {}};
  for (const auto& [setting, value] : facts.settings) {
    const auto& [table, key] = setting;
    if (is_empty_setting(value) || key == "base_runtime_spec" || key == "pod_annotations") continue;
    if (table == from) handler.members.emplace_back(key, value);
    if (table == from + ".options") options.members.emplace_back(key, value);
  }
  if (!facts.settings.contains({from, "runtime_type"}))
    handler.members.emplace_back("runtime_type", toml_string(kRunc));
  if (!theirs.empty() || !facts.base_spec.empty())
    handler.members.emplace_back("base_runtime_spec", toml_string(theirs.empty() ? kVerifySpec : theirs));
  handler.members.emplace_back("pod_annotations", annotations_of(facts, from));
  tables.push_back(std::move(handler));
  if (!options.members.empty()) tables.push_back(std::move(options));
}

std::vector<TomlTable> tables_of(const EngineFacts& facts) {
  std::vector<TomlTable> tables;
  std::vector<std::pair<std::string, std::string>> of_default;
  const auto ours = [&](const std::string& name) {
    return std::pair<std::string, std::string>("pod_annotations", annotations_of(facts, handler_table(facts, name)));
  };
  if (facts.way == InstallWay::kNri) {
    const auto off = facts.settings.find({kNriTable, "disable"});
    if (off == facts.settings.end() || off->second != "false") tables.push_back({kNriTable, {{"disable", "false"}}});
    for (const std::string& name : verified_handlers(facts)) {
      if (facts.base_spec.empty() || !base_spec_of(facts, name).empty()) continue;
      std::vector<std::pair<std::string, std::string>> members{{"base_runtime_spec", toml_string(kVerifySpec)},
                                                               ours(name)};
      if (name == default_handler(facts)) {
        of_default = std::move(members);
      } else {
        tables.push_back({handler_table(facts, name), std::move(members)});
      }
    }
    add_copy_of_default(tables, facts);
  } else if (facts.way == InstallWay::kRuntime) {
    add_handler(tables, facts, "rdma", {ours("rdma")}, facts.programs + "/rdma-runtime");
  } else {
    add_handler(tables, facts, "rdma-hook", {{"base_runtime_spec", toml_string(kHookSpec)}, ours("rdma-hook")}, {});
  }
  const bool replaced = facts.engine.major == 1 && facts.other_form;
  if (!of_default.empty() || replaced) add_default_handler(tables, facts, std::move(of_default));
  return tables;
}

// Names and values as files have them; version 2 of the syntax has another name for the plugin.
std::string print_tables(const EngineFacts& facts, const std::vector<TomlTable>& tables) {
  std::string text;
  for (const TomlTable& table : tables) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table.name);
    for (const auto& [key, value] : table.members)
      text += fmt::format("  {} = {}\n", key, value);
  }
  std::replace(text.begin(), text.end(), '\'', '"');
  const std::string_view printed = "io.containerd.cri.v1.runtime";
  if (facts.engine.major >= 2 && facts.other_form)
    for (std::size_t at; (at = text.find(printed)) != std::string::npos;)
      text.replace(at, printed.size(), "io.containerd.grpc.v1.cri");
  return text;
}

// Without what TOML has several ways to write.
std::string bare(std::string_view text) {
  std::string result(text);
  std::erase_if(result, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"' || c == '\''; });
  return result;
}

bool is_header(std::string_view line) {
  return fabric::trim(line).starts_with('[');
}

// Puts a member into the table whose header is the line at `header`: in place of the one of that name, or first.
void put_member(std::vector<std::string>& lines, std::size_t header, const std::string& key, std::string value) {
  std::replace(value.begin(), value.end(), '\'', '"');
  std::string indentation = lines[header].substr(0, lines[header].find('['));
  const std::string member = fmt::format("{} = {}  # rdma-hook install", key, value);
  for (std::size_t i = header + 1; i < lines.size() && !is_header(lines[i]); ++i) {
    if (!bare(lines[i]).starts_with(key + "=")) continue;
    lines[i] = lines[i].substr(0, lines[i].find_first_not_of(" \t")) + member;
    return;
  }
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(header) + 1, indentation + "  " + member);
}

// The file with the members of those tables that it has, of which containerd 1 takes no second one; the others are left
// in `tables`. Read by lines: what is written otherwise the engine refuses or has lost, and then nothing is changed.
std::string with_members(std::string_view text, std::vector<TomlTable>& tables, const EngineSettings& settings) {
  std::vector<std::string> lines;
  for (const std::string_view line : fabric::split(text, '\n'))
    lines.emplace_back(line);
  std::erase_if(tables, [&](const TomlTable& table) {
    const auto is_its_header = [&](const std::string& line) {
      return is_header(line) && bare(line.substr(0, line.find('#'))) == bare(fmt::format("[{}]", table.name));
    };
    const auto found = std::find_if(lines.begin(), lines.end(), is_its_header);
    if (found == lines.end()) return false;
    const auto header = static_cast<std::size_t>(found - lines.begin());
    for (const auto& [key, value] : table.members) {
      const auto there = settings.find({table.name, key});
      if (there == settings.end() || there->second != value) put_member(lines, header, key, value);
    }
    return true;
  });
  return fabric::join(lines, "\n");
}

// Where a drop-in is read, by an import that is there; empty: nothing is imported. Errors: what is imported is no
// directory.
Result<std::string> imported_directory(const EngineFacts& facts) {
  const auto found = facts.settings.find({"", "imports"});
  const std::string list = found == facts.settings.end() ? "[]" : found->second;
  bool any = false;
  for (const std::string_view part : fabric::split(inside_brackets(list), ',')) {
    std::string pattern(fabric::trim(part));
    std::erase(pattern, '\'');
    if (pattern.empty()) continue;
    any = true;
    if (!pattern.starts_with('/')) pattern.insert(0, "/etc/containerd/");
    if (!pattern.ends_with("/*.toml")) continue;
    const std::string directory = pattern.substr(0, pattern.rfind('/'));
    const bool is_plain = (directory + "/").find("/../") == std::string::npos;
    if (is_plain && directory.find_first_of("*?[") == std::string::npos) return directory;
  }
  if (!any) return std::string();
  return Error{fmt::format("`imports` of {} has no directory: {}", kContainerdConfig, list), EEXIST,
               fmt::format("add \"{}\" to it", kDropIns)};
}

// A line `imports` in front of everything else, or in place of an empty one.
std::string with_import(const std::string& text, const char* version) {
  const std::string import = fmt::format("imports = [\"{}\"]\n", kDropIns);
  if (text.empty()) return fmt::format("{}version = {}\n{}", kOurs, version, import);
  std::size_t at = 0;
  while (at < text.size()) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string line(fabric::trim(std::string_view(text).substr(at, end - at)));
    if (line.starts_with('[')) break;
    std::erase(line, ' ');
    if (line.substr(0, line.find('#')) == "imports=[]")
      return text.substr(0, at) + import + text.substr(std::min(end + 1, text.size()));
    at = end + 1;
  }
  return import + text;
}

// Without them nothing asks us, whatever else is written.
Result<void> check_plugins_are_on(const EngineFacts& facts) {
  const auto found = facts.settings.find({"", "disabled_plugins"});
  if (found == facts.settings.end()) return {};
  for (const char* name :
       {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"}) {
    const bool is_nri = name == std::string_view("io.containerd.nri.v1.nri");
    if ((is_nri && facts.way != InstallWay::kNri) || found->second.find(toml_string(name)) == std::string::npos)
      continue;
    return Error{fmt::format("`disabled_plugins` of {} has `{}`", kContainerdConfig, name), EINVAL,
                 is_nri ? "take it out of that list, or take `--way runtime`"
                        : "take it out of that list: pods need it (Docker does not: `--engine docker`)"};
  }
  return {};
}

// A handler of the name that ours would have may be somebody else's: a drop-in would change it. That it has more
// annotations, or leaves something open, is no other handler.
Result<void> check_handler_is_ours(const EngineFacts& facts, const std::vector<TomlTable>& tables) {
  if (facts.way == InstallWay::kNri) return {};
  const char* name = facts.way == InstallWay::kRuntime ? "rdma" : "rdma-hook";
  const std::string own = handler_table(facts, name);
  for (const TomlTable& table : tables) {
    if (table.name != own && table.name != own + ".options") continue;
    for (const auto& [key, value] : table.members) {
      const auto found = facts.settings.find({table.name, key});
      if (found == facts.settings.end() || found->second == value || is_empty_setting(found->second) ||
          key == "pod_annotations")
        continue;
      return Error{fmt::format("a handler `{}` is there already: its {} is {}", name, key, found->second), EEXIST,
                   fmt::format("take it away, or merge by hand: {} = {}", key, value)};
    }
  }
  return {};
}

void say_what_is_not_verified(const EngineFacts& facts, InstallPlan& plan) {
  if (facts.base_spec.empty()) {
    plan.said.emplace_back("`ctr` is not there: without `rdma-hook verify` containers start while rdma-nri is away");
    return;
  }
  for (const std::string& name : verified_handlers(facts)) {
    const std::string theirs = base_spec_of(facts, name);
    if (!theirs.empty()) {
      plan.said.push_back(fmt::format("handler `{}` has `{}`: add verify to it, `rdma-hook base-spec --verify < {}`",
                                      name, theirs, theirs));
    }
  }
}

}  // namespace

std::string containerd_tables(const EngineFacts& facts) {
  return print_tables(facts, tables_of(facts));
}

bool guess_other_form(const EngineFacts& facts, std::string_view config) {
  if (facts.engine.major == 1) return config.find(".runtimes.") == std::string_view::npos;
  for (const std::string_view line : fabric::split(config, '\n')) {
    std::string bare(line);
    std::erase_if(bare, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    if (bare.starts_with("version=2")) return true;
    if (bare.starts_with('[')) break;
  }
  return false;
}

Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts, const ReadNodeFile& read) {
  TRY_VOID(check_plugins_are_on(facts));
  std::vector<TomlTable> tables = tables_of(facts);
  TRY_VOID(check_handler_is_ours(facts, tables));
  for (const TomlTable& table : tables)
    for (const auto& [key, value] : table.members)
      plan.meant[{table.name, key}] = value;
  if (facts.way == InstallWay::kNri) say_what_is_not_verified(facts, plan);
  const bool is_named =
      facts.way != InstallWay::kNri || std::any_of(tables.begin(), tables.end(), [](const TomlTable& table) {
        return std::any_of(table.members.begin(), table.members.end(),
                           [](const auto& member) { return member.second == toml_string(kVerifySpec); });
      });
  if (!facts.base_spec.empty() && is_named && facts.way != InstallWay::kRuntime)
    TRY_VOID(add_own_file(plan, read, facts.way == InstallWay::kNri ? kVerifySpec : kHookSpec, facts.base_spec));
  if (tables.empty()) return {};
  const auto config = TRY(read(kContainerdConfig));
  if (facts.engine.major == 1) {
    std::string text = with_members(config && !config->empty() ? *config : "version = 2\n", tables, facts.settings);
    // The last line may have no newline.
    if (!tables.empty()) text += (text.ends_with('\n') ? "\n" : "\n\n") + (kOurs + print_tables(facts, tables));
    plan.edits.push_back({kContainerdConfig, config, std::move(text)});
    return {};
  }
  const std::string directory = TRY(imported_directory(facts));
  const char* version = facts.other_form ? "2" : "3";
  plan.drop_in = (directory.empty() ? std::string("/etc/containerd/conf.d") : directory) + kOwnDropIn;
  TRY_VOID(add_own_file(plan, read, plan.drop_in,
                        fmt::format("{}version = {}\n\n{}", kOurs, version, print_tables(facts, tables))));
  if (directory.empty()) plan.edits.push_back({kContainerdConfig, config, with_import(config.value_or(""), version)});
  return {};
}

}  // namespace hook
