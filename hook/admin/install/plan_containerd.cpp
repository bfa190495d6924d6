// The plan for containerd. containerd 2 merges a drop-in key by key, so install adds a drop-in. In containerd 1, an
// imported file replaces the whole table of a plugin. There install adds lines to the tables that config.toml has, and
// adds missing tables at its end.
#include "hook/admin/install/plan.hpp"

#include <algorithm>
#include <cerrno>

#include "base/result.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr const char* kDropIns = "/etc/containerd/conf.d/*.toml";
constexpr const char* kOwnDropIn = "/rdma-init.toml";
constexpr const char* kVerifySpec = "/etc/containerd/rdma-verify.json";
constexpr const char* kHookSpec = "/etc/containerd/rdma-hook.json";
constexpr const char* kRunc = "io.containerd.runc.v2";
// The newest version of config.toml that the plan was tested with: containerd 2.3.
constexpr unsigned kNewestConfig = 4;
constexpr const char* kNriTable = "plugins.'io.containerd.nri.v1.nri'";

struct TomlMember {
  std::string key;
  std::string value;
};
struct TomlTable {
  std::string name;
  std::vector<TomlMember> members;
};
using TomlTables = std::vector<TomlTable>;

// Adds the table of a handler, and the table of its options if `options` is not empty.
void add_tables(TomlTables& tables, const std::string& handler, std::vector<TomlMember> members,
                std::vector<TomlMember> options) {
  tables.push_back({handler, std::move(members)});
  if (!options.empty()) tables.push_back({handler + ".options", std::move(options)});
}

// Returns the default handler. If the default handler is that of install, whose table is missing during an upgrade,
// returns runc or the first other handler: a new handler copies the settings of this one, such as `SystemdCgroup`.
std::string default_handler(const EngineFacts& facts) {
  const std::string above = handlers_of(facts) + ".runtimes.";
  const std::string name = setting_text(facts.settings, handlers_of(facts), "default_runtime_name");
  const auto exists = [&](const std::string& one) { return facts.settings.contains({above + one, "runtime_type"}); };
  const bool is_missing = (name == "rdma" || name == "rdma-hook") && !exists(name);
  if (!name.empty() && !is_missing) return name;
  if (is_missing && !exists("runc"))
    for (const auto& [setting, value] : facts.settings)
      if (setting.key == "runtime_type" && setting.table.starts_with(above)) return setting.table.substr(above.size());
  return "runc";
}

std::string handler_table(const EngineFacts& facts, const std::string& name) {
  return handlers_of(facts) + ".runtimes." + name;
}

std::string toml_string(std::string_view text) {
  return fmt::format("'{}'", text);
}

// Returns the text between the brackets of a printed list; an empty text if the value is not a list.
std::string_view inside_brackets(std::string_view list) {
  const bool is_list = list.size() >= 2 && list.front() == '[' && list.back() == ']';
  return is_list ? list.substr(1, list.size() - 2) : std::string_view();
}

// Returns the annotations that containerd passes from a pod to the containers of a handler: the present annotations,
// followed by the annotations of rdma-init.
std::string annotations_of(const EngineFacts& facts, const std::string& table) {
  std::vector<std::string> all;
  const auto found = facts.settings.find({table, "pod_annotations"});
  const std::string there = found == facts.settings.end() ? "[]" : found->second;
  for (const std::string_view part : base::split(inside_brackets(there), ','))
    if (!base::trim(part).empty()) all.emplace_back(base::trim(part));
  for (const char* ours : {"'rdma-init.io/*'", "'k8s.volcengine.com/*'", "'cni.spidernet.io/*'"})
    if (std::ranges::find(all, ours) == all.end()) all.emplace_back(ours);
  return fmt::format("[{}]", base::join(all, ", "));
}

// Returns the `SystemdCgroup` of the default handler: all handlers must use the kubelet's cgroup driver, so new
// handlers copy this setting.
std::string systemd_cgroup(const EngineFacts& facts) {
  const auto found = facts.settings.find({handler_table(facts, default_handler(facts)) + ".options", "SystemdCgroup"});
  return found == facts.settings.end() ? "false" : found->second;
}

bool has_member(const std::vector<TomlMember>& members, std::string_view key) {
  return std::ranges::any_of(members, [&](const TomlMember& member) { return member.key == key; });
}

// Adds a handler that is a copy of the default handler, with `members` and `options` in place of its settings. All
// settings are copied, because a container of the new handler must start as one of the default handler does
// (NoPivotRoot, snapshotter, Root).
void add_copy_of_default(TomlTables& tables, const EngineFacts& facts, const std::string& name,
                         const std::vector<TomlMember>& members, std::vector<TomlMember> options) {
  const std::string from = handler_table(facts, default_handler(facts));
  std::vector<TomlMember> all;
  for (const auto& [setting, value] : facts.settings) {
    if (is_empty_setting(value)) continue;
    if (setting.table == from && !has_member(members, setting.key)) all.push_back({setting.key, value});
    if (setting.table == from + ".options" && !has_member(options, setting.key))
      options.push_back({setting.key, value});
  }
  if (!has_member(all, "runtime_type")) all.insert(all.begin(), {"runtime_type", toml_string(kRunc)});
  all.insert(all.end(), members.begin(), members.end());
  add_tables(tables, handler_table(facts, name), std::move(all), std::move(options));
}

// Adds a handler that executes runc, or `program` in place of runc if it is not empty.
void add_runc_handler(TomlTables& tables, const EngineFacts& facts, const std::string& name,
                      std::vector<TomlMember> members, const std::string& program) {
  std::vector<TomlMember> options;
  if (!program.empty()) options.push_back({"BinaryName", toml_string(program)});
  options.push_back({"SystemdCgroup", systemd_cgroup(facts)});
  const std::string type = setting_text(facts.settings, handler_table(facts, default_handler(facts)), "runtime_type");
  if (type.empty() || type == kRunc) {
    add_copy_of_default(tables, facts, name, members, std::move(options));
    return;
  }
  // The settings of a default handler that does not execute runc have no meaning for runc.
  members.insert(members.begin(), {"runtime_type", toml_string(kRunc)});
  add_tables(tables, handler_table(facts, name), std::move(members), std::move(options));
}

// Returns the names of the default handler and of all handlers that execute runc: rdma-nri receives the containers of
// these handlers, and `rdma-hook verify` can be added to their base specification.
std::vector<std::string> verified_handlers(const EngineFacts& facts) {
  const std::string above = handlers_of(facts) + ".runtimes.";
  std::vector<std::string> names{default_handler(facts)};
  for (const auto& [setting, value] : facts.settings) {
    if (setting.key != "runtime_type" || value != toml_string(kRunc) || !setting.table.starts_with(above)) continue;
    std::string name = setting.table.substr(above.size());
    // A handler with a dot or quote in its name is skipped: containerd would read the header that install prints for it
    // as another table.
    if (name != names.front() && name.find_first_of("'.") == std::string::npos) names.push_back(std::move(name));
  }
  return names;
}

std::string base_spec_of(const EngineFacts& facts, const std::string& handler) {
  return setting_text(facts.settings, handler_table(facts, handler), "base_runtime_spec");
}

// Adds the default handler with additional members. containerd 1.7 drops its built-in default handler if a file has a
// table of any handler, so all members of the default handler are written.
void add_default_handler(TomlTables& tables, const EngineFacts& facts, std::vector<TomlMember> members) {
  const std::string handler = handler_table(facts, default_handler(facts));
  std::vector<TomlMember> options;
  if (facts.engine.major == 1) {
    if (!facts.settings.contains({handler, "runtime_type"})) members.push_back({"runtime_type", toml_string(kRunc)});
    for (const auto& [setting, value] : facts.settings) {
      if (is_empty_setting(value) || has_member(members, setting.key)) continue;
      if (setting.table == handler) members.push_back({setting.key, value});
      if (setting.table == handler + ".options") options.push_back({setting.key, value});
    }
  }
  add_tables(tables, handler, std::move(members), std::move(options));
}

// Adds the handler `rdma` as a copy of the default handler, so that a pod with RuntimeClass `rdma` also starts on nodes
// with way NRI. On a node without rdma-init the handler is missing, so the pod does not start there.
void add_handler_for_nri(TomlTables& tables, const EngineFacts& facts) {
  const std::string theirs = base_spec_of(facts, default_handler(facts));
  // A handler `rdma` that install did not write is kept, because pods may depend on it.
  if (facts.settings.contains({handler_table(facts, "rdma"), "runtime_type"})) return;
  std::vector<TomlMember> members;
  if (!theirs.empty() || !facts.base_spec.empty())
    members.push_back({"base_runtime_spec", toml_string(theirs.empty() ? kVerifySpec : theirs)});
  members.push_back({"pod_annotations", annotations_of(facts, handler_table(facts, default_handler(facts)))});
  add_copy_of_default(tables, facts, "rdma", members, {});
}

TomlTables tables_of(const EngineFacts& facts) {
  TomlTables tables;
  std::vector<TomlMember> of_default;
  const auto ours = [&](const std::string& name) {
    const bool exists = facts.settings.contains({handler_table(facts, name), "runtime_type"});
    return TomlMember{"pod_annotations",
                      annotations_of(facts, handler_table(facts, exists ? name : default_handler(facts)))};
  };
  if (facts.way == InstallWay::kNri) {
    const auto off = facts.settings.find({kNriTable, "disable"});
    if (off == facts.settings.end() || off->second != "false") tables.push_back({kNriTable, {{"disable", "false"}}});
    for (const std::string& name : verified_handlers(facts)) {
      if (facts.base_spec.empty() || !base_spec_of(facts, name).empty()) continue;
      std::vector<TomlMember> members{{"base_runtime_spec", toml_string(kVerifySpec)}, ours(name)};
      if (name == default_handler(facts)) {
        of_default = std::move(members);
      } else {
        tables.push_back({handler_table(facts, name), std::move(members)});
      }
    }
    add_handler_for_nri(tables, facts);
  } else if (facts.way == InstallWay::kRuntime) {
    add_runc_handler(tables, facts, "rdma", {ours("rdma")}, facts.programs + "/rdma-runtime");
  } else {
    add_runc_handler(tables, facts, "rdma-hook", {{"base_runtime_spec", toml_string(kHookSpec)}, ours("rdma-hook")},
                     {});
  }
  if (!of_default.empty() || facts.replaces_default) add_default_handler(tables, facts, std::move(of_default));
  return tables;
}

// Prints tables as TOML. In a file with `version = 2`, containerd 2 expects the plugin name of containerd 1,
// io.containerd.grpc.v1.cri.
std::string print_tables(const EngineFacts& facts, const TomlTables& tables) {
  std::string text;
  for (const TomlTable& table : tables) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table.name);
    for (const auto& [key, value] : table.members)
      text += fmt::format("  {} = {}\n", key, value);
  }
  std::ranges::replace(text, '\'', '"');
  const std::string_view printed = "io.containerd.cri.v1.runtime";
  if (facts.engine.major >= 2 && facts.drop_in_version == 2)
    for (std::size_t at; (at = text.find(printed)) != std::string::npos;)
      text.replace(at, printed.size(), "io.containerd.grpc.v1.cri");
  return text;
}

bool is_header(std::string_view line) {
  return base::trim(line).starts_with('[');
}

// Sets `key` in the table whose header is lines[header]. Replaces the line of `key`; if the table has no such line,
// adds one directly below the header.
void put_member(std::vector<std::string>& lines, std::size_t header, const std::string& key, std::string value) {
  std::ranges::replace(value, '\'', '"');
  std::string indentation = lines[header].substr(0, lines[header].find('['));
  const std::string member = fmt::format("{} = {}  # rdma-hook install", key, value);
  for (std::size_t i = header + 1; i < lines.size() && !is_header(lines[i]); ++i) {
    if (!bare_name(lines[i]).starts_with(key + "=")) continue;
    lines[i] = lines[i].substr(0, lines[i].find_first_not_of(" \t")) + member;
    return;
  }
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(header) + 1, indentation + "  " + member);
}

// Adds members to the tables that the file already has, because containerd 1 refuses a file with two tables of one
// name. Returns the new text, and removes these tables from `tables`, so that only the missing tables remain there. The
// text is edited line by line. If this function does not recognize the form of a table, the engine's check fails and
// nothing is changed.
std::string with_members(std::string_view text, TomlTables& tables, const EngineSettings& settings) {
  std::vector<std::string> lines;
  for (const std::string_view line : base::split(text, '\n'))
    lines.emplace_back(line);
  std::erase_if(tables, [&](const TomlTable& table) {
    const auto is_its_header = [&](const std::string& line) {
      return is_header(line) && bare_name(without_toml_comment(line)) == bare_name(fmt::format("[{}]", table.name));
    };
    const auto found = std::ranges::find_if(lines, is_its_header);
    if (found == lines.end()) return false;
    const auto header = static_cast<std::size_t>(found - lines.begin());
    for (const auto& [key, value] : table.members) {
      const auto there = settings.find({table.name, key});
      if (there == settings.end() || there->second != value) put_member(lines, header, key, value);
    }
    return true;
  });
  return base::join(lines, "\n");
}

// Returns "FILE, line N" for a key at the top of config.toml, or only the file if no line is found.
std::string line_in_config(const EngineFacts& facts, std::string_view key) {
  for (const FileSetting& one : find_in_files(facts, "", key))
    if (one.file == kContainerdConfig) return fmt::format("{}, line {}", one.file, one.line);
  return kContainerdConfig;
}

// Returns the directory of drop-ins that `imports` names; an empty text if `imports` is empty. Errors: EEXIST,
// `imports` has entries, but none names such a directory.
Result<std::string> imported_directory(const EngineFacts& facts) {
  const auto patterns = import_patterns(facts);
  for (const std::string& pattern : patterns) {
    if (!pattern.ends_with("/*.toml")) continue;
    const std::string directory = pattern.substr(0, pattern.rfind('/'));
    // A directory with a wildcard or `..` is skipped, because install must not write to a directory that is not meant
    // for drop-ins.
    const bool is_plain = (directory + "/").find("/../") == std::string::npos;
    if (is_plain && directory.find_first_of("*?[") == std::string::npos) return directory;
  }
  if (patterns.empty()) return std::string();
  return Error{fmt::format("{}: `imports` names no directory: {}", line_in_config(facts, "imports"),
                           facts.settings.at({"", "imports"})),
               EEXIST, fmt::format("add \"{}\" to `imports`", kDropIns)};
}

// Returns the path of install's drop-in: in `directory`, or in /etc/containerd/conf.d if `directory` is an error or
// empty.
std::string drop_in_path(const Result<std::string>& directory) {
  const bool is_named = directory && !directory->empty();
  return (is_named ? *directory : std::string("/etc/containerd/conf.d")) + kOwnDropIn;
}

// Returns the text of config.toml with a line `imports` that names kDropIns. TOML requires this line before all tables.
// Replaces an empty `imports`.
std::string with_import(const std::string& text, unsigned version) {
  const std::string import = fmt::format("imports = [\"{}\"]\n", kDropIns);
  if (text.empty()) return fmt::format("{}version = {}\n{}", kOurs, version, import);
  std::size_t at = 0;
  while (at < text.size()) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string line(base::trim(std::string_view(text).substr(at, end - at)));
    if (line.starts_with('[')) break;
    std::erase(line, ' ');
    if (without_toml_comment(line) == "imports=[]")
      return text.substr(0, at) + import + text.substr(std::min(end + 1, text.size()));
    at = end + 1;
  }
  return import + text;
}

// Checks that containerd's plugin for pods (CRI) is enabled, and for way NRI also its NRI plugin. Errors:
// `disabled_plugins` lists one of them: EOPNOTSUPP for the NRI plugin, EINVAL for the other one.
Result<void> check_plugins_are_on(const EngineFacts& facts) {
  const auto found = facts.settings.find({"", "disabled_plugins"});
  if (found == facts.settings.end()) return {};
  for (const char* name :
       {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"}) {
    const bool is_nri = name == std::string_view("io.containerd.nri.v1.nri");
    if ((is_nri && facts.way != InstallWay::kNri) || found->second.find(toml_string(name)) == std::string::npos)
      continue;
    std::string where = kContainerdConfig;
    for (const FileSetting& one : find_in_files(facts, "", "disabled_plugins"))
      if (one.value.find(toml_string(name)) != std::string::npos)
        where = fmt::format("{}, line {}", one.file, one.line);
    return Error{fmt::format("{}: `disabled_plugins` lists `{}`", where, name), is_nri ? EOPNOTSUPP : EINVAL,
                 is_nri ? "remove it from that list or use `--way runtime`"
                        : "remove it from that list, because pods need it; for Docker use `--engine docker`"};
  }
  return {};
}

// Errors: EINVAL, config.toml has a version below which containerd 2 loads no drop-in. Adds a message for a version
// that is newer than the plan.
Result<void> check_version(const EngineFacts& facts, InstallPlan& plan) {
  if (facts.engine.major >= 2 && facts.config_version == 1)
    return Error{fmt::format("{}: containerd loads no drop-in of version 2 or 3 below version 1",
                             line_in_config(facts, "version")),
                 EINVAL, "replace it by the output of `containerd config migrate`"};
  if (facts.config_version > kNewestConfig)
    plan.messages.push_back(fmt::format("{}: this release does not know version {}: containerd's check decides",
                                        line_in_config(facts, "version"), facts.config_version));
  return {};
}

// Errors: EEXIST, a handler `rdma` or `rdma-hook` exists that install did not write. A handler with additional
// annotations or with an empty setting still counts as written by install.
Result<void> check_handler_is_ours(const EngineFacts& facts, const TomlTables& tables) {
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
      const std::string in_files = table.name.substr(table.name.find("'.containerd."));
      return Error{fmt::format("{}: handler `{}` already exists with another {}: {}",
                               where_set(facts, in_files, key, kContainerdConfig), name, key, found->second),
                   EEXIST, fmt::format("remove it or merge by hand: {} = {}", key, value)};
    }
  }
  return {};
}

void report_not_verified(const EngineFacts& facts, InstallPlan& plan) {
  if (facts.base_spec.empty()) {
    plan.messages.emplace_back(
        "`ctr` is missing, so `rdma-hook verify` is not installed: while rdma-nri is down, containers start unchecked");
    return;
  }
  for (const std::string& name : verified_handlers(facts)) {
    const std::string theirs = base_spec_of(facts, name);
    if (!theirs.empty())
      plan.messages.push_back(fmt::format(
          "handler `{}` uses `{}`: add `verify` with `rdma-hook base-spec --verify < {}`", name, theirs, theirs));
  }
}

}  // namespace

std::string handlers_of(const EngineFacts& facts) {
  return fmt::format("plugins.'{}'.containerd",
                     facts.engine.major == 1 ? "io.containerd.grpc.v1.cri" : "io.containerd.cri.v1.runtime");
}

std::string containerd_tables(const EngineFacts& facts) {
  return print_tables(facts, tables_of(facts));
}

void guess_form(EngineFacts& facts, std::string_view config) {
  if (facts.engine.major == 1) {
    facts.replaces_default = config.find(".runtimes.") == std::string_view::npos;
    return;
  }
  constexpr std::string_view kKey = "version=";
  for (const std::string_view line : base::split(config, '\n')) {
    const std::string text = bare_name(without_toml_comment(line));
    if (text.starts_with('[')) break;
    if (text.starts_with(kKey))
      facts.config_version = base::parse_number<unsigned>(std::string_view(text).substr(kKey.size())).value_or(0);
  }
  facts.drop_in_version = facts.config_version == 2 ? 2 : 3;
}

void change_form(EngineFacts& facts) {
  if (facts.engine.major == 1) {
    facts.replaces_default = !facts.replaces_default;
  } else {
    facts.drop_in_version = facts.drop_in_version == 2 ? 3 : 2;
  }
}

std::vector<std::string> containerd_files(const EngineFacts& facts) {
  std::vector<std::string> files{kContainerdConfig, kOwnConfig, kVerifySpec, kHookSpec,
                                 drop_in_path(imported_directory(facts))};
  files.insert(files.end(), facts.config_files.begin(), facts.config_files.end());
  return files;
}

Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts) {
  TRY_VOID(check_plugins_are_on(facts));
  TRY_VOID(check_version(facts, plan));
  TomlTables tables = tables_of(facts);
  TRY_VOID(check_handler_is_ours(facts, tables));
  for (const TomlTable& table : tables)
    for (const auto& [key, value] : table.members)
      plan.meant[{table.name, key}] = value;
  if (facts.way == InstallWay::kNri) report_not_verified(facts, plan);
  const bool is_named = facts.way != InstallWay::kNri || std::ranges::any_of(tables, [](const TomlTable& table) {
                          return std::ranges::any_of(table.members, [](const auto& member) {
                            return member.value == toml_string(kVerifySpec);
                          });
                        });
  if (!facts.base_spec.empty() && is_named && facts.way != InstallWay::kRuntime)
    TRY_VOID(add_own_file(plan, facts, facts.way == InstallWay::kNri ? kVerifySpec : kHookSpec, facts.base_spec));
  if (tables.empty()) return {};
  const auto config = TRY(file_of(facts, kContainerdConfig));
  if (facts.engine.major == 1) {
    std::string text = with_members(config && !config->empty() ? *config : "version = 2\n", tables, facts.settings);
    // A blank line separates the block from the text above, also if the last line of that text has no newline.
    if (!tables.empty())
      text += (text.ends_with('\n') ? "\n" : "\n\n") + (kOurs + print_tables(facts, tables) + kOursEnd);
    plan.edits.push_back({kContainerdConfig, config, std::move(text)});
    return {};
  }
  const auto imported = imported_directory(facts);
  const std::string directory = TRY(imported);
  const unsigned version = facts.drop_in_version;
  plan.drop_in = drop_in_path(imported);
  TRY_VOID(add_own_file(plan, facts, plan.drop_in,
                        fmt::format("{}version = {}\n\n{}", kOurs, version, print_tables(facts, tables))));
  if (directory.empty()) plan.edits.push_back({kContainerdConfig, config, with_import(config.value_or(""), version)});
  return {};
}

}  // namespace hook
