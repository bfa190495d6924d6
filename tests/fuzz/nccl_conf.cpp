// nccl.conf files and environments: read as NCCL reads them, one line after the other.
#include <fuzzer/FuzzedDataProvider.h>

#include <sstream>

#include "init/settings.hpp"
#include "require.hpp"
#include "same_settings.hpp"

namespace {

using fuzz::require;
using fuzz::same_settings;

// NCCL's reader once more, by lines: what add_conf() adds to settings.
init::Settings read_by_lines(const std::string& text, const std::string& path, init::Settings settings) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::size_t equals = line.find('=');
    if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    if (name.compare(0, 5, "NCCL_") == 0) settings.insert({name, {line.substr(equals + 1), path}});
  }
  return settings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  FuzzedDataProvider data(bytes, size);
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
    require(init::is_library_variable(name), "only variables of the libraries are taken", name);
    require(setting.source == "environment", "a source is named", name);
  }
  for (const std::string& path : init::conf_paths(settings, "/root"))
    require(!path.empty(), "a path has a name");

  const std::string text = data.ConsumeRemainingBytesAsString();
  const init::Settings expected = read_by_lines(text, "/etc/nccl.conf", settings);
  init::add_conf(text, "/etc/nccl.conf", settings);
  require(same_settings(settings, expected), "nccl.conf is read line by line", text);
  return 0;
}
