#include "hook/config/config_members.hpp"
#include "hook/config/config_values.hpp"

namespace hook {
namespace {

// A name is looked for in PATH.
bool is_program(const std::string& text) {
  return text.starts_with('/') ? text.size() > 1 : text.find('/') == std::string::npos;
}

}  // namespace

void read_runtime(ConfigReader& reader, const ConfigValue& value, RuntimeOptions& runtime) {
  const auto read_runtimes = [&](const ConfigValue& list) {
    reader.texts(list, runtime.runtimes, [&](const ConfigValue& element, const std::string& text) {
      if (is_program(text)) return true;
      reader.error(element, fmt::format("`{}` is neither a name nor an absolute path", shown(text)),
                   "write \"runc\", or \"/usr/sbin/runc\"");
      return false;
    });
    if (runtime.runtimes.empty()) reader.error(list, "no runtime is left", "write [\"runc\", \"crun\"]");
  };
  const auto read_hook = [&](const ConfigValue& path) {
    const auto text = reader.text(path);
    if (text && text->starts_with('/')) {
      runtime.hook = *text;
    } else if (text) {
      reader.error(path, fmt::format("`{}` is no absolute path", shown(*text)), "write \"/usr/local/bin/rdma-hook\"");
    }
  };
  const auto read_engine = [&](const ConfigValue& name) {
    if (const auto word = reader.word(name, {"runc", "docker", "podman", "crio", "containerd"})) {
      runtime.engine = parse_engine(*word);
    }
  };
  reader.members(value,
                 {{"runtimes", read_runtimes},
                  {"hook", read_hook},
                  {"engine", read_engine},
                  {"allow_system_calls", [&](const auto& v) { reader.boolean(v, runtime.allow_system_calls); }}});
}

void read_nri(ConfigReader& reader, const ConfigValue& value, NriOptions& nri) {
  reader.members(value, {{"evict_ungranted", [&](const auto& v) { reader.boolean(v, nri.evict_ungranted); }}});
}

}  // namespace hook
