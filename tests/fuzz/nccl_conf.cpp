// Any text as nccl.conf and as environment, compared with a reader like NCCL's, line by line.
#include "fabric/library_variables.hpp"
#include "init/settings.hpp"
#include "require.hpp"
#include "same_settings.hpp"

namespace {

using namespace fuzz;

// A second reader, by lines: returns the settings after add_conf(). NCCL's buffer has room for 1,023 bytes.
init::Settings read_conf(const std::string& text, const std::string& path, init::Settings settings) {
  settings = fuzz::read_by_lines(text, path, std::move(settings),
                                 [](const std::string&, const std::string& name) { return name.starts_with("NCCL_"); });
  for (auto& [name, setting] : settings)
    if (setting.source == path && setting.value.size() > 1023) setting.value.resize(1023);
  return settings;
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  std::vector<std::string> entries;
  std::vector<const char*> environment;
  for (auto left = data.ConsumeIntegralInRange(0, 3); left > 0; --left)
    entries.push_back(data.ConsumeRandomLengthString(40));
  for (const std::string& entry : entries)
    environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  init::Settings settings;
  init::add_environment(environment.data(), settings);
  for (const auto& [name, setting] : settings) {
    require(fabric::is_policy_variable(name), "only variables of the libraries are taken", name);
    require(setting.source == "environment", "a source is named", name);
  }
  for (const std::string& path : init::conf_paths(settings, {"/root"}))
    require(!path.empty(), "a path has a name");

  const std::string text = data.ConsumeRemainingBytesAsString();
  const init::Settings expected = read_conf(text, "/etc/nccl.conf", settings);
  init::add_conf(text, "/etc/nccl.conf", settings);
  require(same_settings(settings, expected), "nccl.conf is read line by line", text);
}
