// Finds the configuration files that an engine reads, and the lines of these files that set a setting.
#include "hook/admin/install/plan.hpp"

#include <algorithm>
#include <cerrno>

#include "base/text.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

// Removes blanks, so that values can be compared, and replaces quotes as the parser of printed settings does.
std::string bare_value(std::string_view text) {
  std::string value(text);
  std::erase_if(value, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
  std::ranges::replace(value, '"', '\'');
  if (value.ends_with(",]")) value.erase(value.size() - 2, 1);
  return value;
}

// Appends the lines of a file that set `key`. A list over several lines counts with its first line.
void find_in_text(const std::string& file, std::string_view text, const SettingName& wanted,
                  std::vector<FileSetting>& found) {
  std::string table;
  bool in_list = false;
  bool is_wanted = false;
  unsigned number = 0;
  for (const std::string_view raw : base::split(text, '\n')) {
    ++number;
    const std::string_view line = base::trim(without_toml_comment(raw));
    if (in_list) {
      in_list = !line.ends_with(']');
      if (is_wanted) found.back().value += line;
      if (is_wanted && !in_list) found.back().value = bare_value(found.back().value);
      continue;
    }
    if (line.starts_with('[')) {
      table = bare_name(line.substr(1, line.rfind(']') - 1));
      continue;
    }
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view value = base::trim(line.substr(equals + 1));
    in_list = value.starts_with('[') && !value.ends_with(']');
    is_wanted = bare_name(line.substr(0, equals)) == wanted.key &&
                (wanted.table.empty() ? table.empty() : table.ends_with(wanted.table));
    if (is_wanted) found.push_back({file, number, wanted.key, bare_value(value)});
  }
}

// Appends the files of a directory and of the directories in it, in the order of their names.
void add_files_below(const std::string& root, const std::string& directory, std::vector<std::string>& files) {
  auto names = names_in(root, directory);
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", directory, name);
    const std::size_t before = files.size();
    add_files_below(root, path, files);
    if (files.size() == before) files.push_back(path);
  }
}

// Podman 6 reads more directories, and of the main files only the first (containers-config.d(5)). A file hides files of
// the same name in earlier directories.
std::vector<std::string> podman_files(const std::string& root, int major) {
  constexpr const char* kMain[] = {"/usr/share/containers/containers.conf", "/etc/containers/containers.conf"};
  std::vector<std::string> directories{"/etc/containers/containers.conf.d"};
  std::vector<std::string> files(std::begin(kMain), std::end(kMain));
  if (major >= 6) {
    directories = {"/usr/share/containers/containers.conf.d", "/usr/share/containers/containers.rootful.conf.d",
                   "/etc/containers/containers.conf.d", "/etc/containers/containers.rootful.conf.d"};
    if (node_has(root, kMain[1], F_OK)) files.erase(files.begin());
  }
  std::map<std::string, std::string> drop_ins{{"90-rdma-init.conf", kPodmanDropIn}};
  for (const std::string& directory : directories)
    for (const std::string& name : names_in(root, directory))
      if (name.ends_with(".conf")) drop_ins[name] = fmt::format("{}/{}", directory, name);
  for (const auto& [name, path] : drop_ins)
    files.push_back(path);
  // install only reads these files, except its own, so it follows a link as Podman does.
  for (std::string& file : files)
    if (file != kPodmanDropIn) file = followed(root, file);
  return files;
}

std::vector<std::string> containerd_imports(const std::string& root, const EngineFacts& facts) {
  std::vector<std::string> files{kContainerdConfig};
  for (const std::string& pattern : import_patterns(facts)) {
    for (std::string& path : matching_files(root, pattern))
      if (std::ranges::find(files, path) == files.end()) files.push_back(std::move(path));
  }
  return files;
}

}  // namespace

std::string_view without_toml_comment(std::string_view line) {
  char quote = '\0';
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (quote == '\0' && c == '#') {
      return line.substr(0, at);
    }
  }
  return line;
}

std::vector<std::string> import_patterns(const EngineFacts& facts) {
  auto patterns = setting_list(facts.settings, "", "imports");
  std::erase(patterns, "");
  for (std::string& pattern : patterns)
    if (!pattern.starts_with('/')) pattern.insert(0, "/etc/containerd/");
  return patterns;
}

std::vector<std::string> config_files(const std::string& root, const EngineFacts& facts) {
  switch (facts.engine.engine) {
    case Engine::kContainerd:
      return containerd_imports(root, facts);
    case Engine::kCrio: {
      std::vector<std::string> files{"/etc/crio/crio.conf"};
      add_files_below(root, "/etc/crio/crio.conf.d", files);
      if (std::ranges::find(files, kCrioDropIn) == files.end())
        files.insert(std::upper_bound(files.begin() + 1, files.end(), kCrioDropIn), kCrioDropIn);
      return files;
    }
    case Engine::kPodman:
      return podman_files(root, facts.engine.major);
    default:
      return {};
  }
}

std::vector<FileSetting> find_in_files(const EngineFacts& facts, std::string_view table, std::string_view key) {
  const SettingName wanted{bare_name(table), std::string(key)};
  std::vector<FileSetting> found;
  for (const std::string& file : facts.config_files) {
    const auto text = file_of(facts, file);
    if (text && *text) find_in_text(file, **text, wanted, found);
  }
  return found;
}

std::string where_set(const EngineFacts& facts, std::string_view table, std::string_view key,
                      std::string_view otherwise) {
  const auto found = find_in_files(facts, table, key);
  return found.empty() ? std::string(otherwise) : fmt::format("{}, line {}", found.back().file, found.back().line);
}

Result<void> check_later_files(const EngineFacts& facts, std::string_view own_file, const EngineSettings& meant) {
  for (const auto& [setting, value] : meant) {
    auto found = find_in_files(facts, setting.table, setting.key);
    std::erase_if(found, [&](const FileSetting& one) {
      return std::ranges::find(facts.config_files, one.file) <= std::ranges::find(facts.config_files, own_file);
    });
    if (found.empty() || found.back().value == bare_value(value)) continue;
    return Error{fmt::format("{}, line {}: {} = {} would win over `{}`", found.back().file, found.back().line,
                             setting.key, found.back().value, own_file),
                 EEXIST, fmt::format("remove this line, or set it to {}", value)};
  }
  return {};
}

}  // namespace hook
