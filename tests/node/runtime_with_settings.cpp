// rdma-runtime with the settings of a file, $RDMA_RUNTIME_SETTINGS, in place of the node's: otherwise the same program.
#include <cstdlib>

#include "base/json/json.hpp"
#include "hook/config/read_config.hpp"
#include "shim/runtime/run.hpp"

namespace {

using base::Json;

shim::Settings read_settings(const char* path) {
  shim::Settings settings;
  const auto text = base::read_text_file(path);
  const Json json = text ? Json::parse(*text) : Json::object();
  const auto take = [&](const char* name, std::string& value) {
    if (json.contains(name)) value = json[name].get<std::string>();
  };
  if (json.contains("runtimes")) settings.runtimes = json["runtimes"].get<std::vector<std::string>>();
  if (json.contains("engine")) settings.engine = hook::parse_engine(json["engine"].get<std::string>());
  if (json.contains("config")) settings.node.config = {json["config"].get<std::string>(), "", true};
  take("hook", settings.hook);
  take("root", settings.node.root);
  take("ledger", settings.node.ledger);
  return settings;
}

}  // namespace

int main(int, char** argv) {
  const char* const path = std::getenv("RDMA_RUNTIME_SETTINGS");
  shim::Settings settings = path ? read_settings(path) : shim::Settings();
  const auto read = [&] {
    settings.admin = hook::read_config(settings.node.config);
    // As node_settings() does: an unreadable configuration names no runtime.
    if (!settings.admin) static_cast<hook::RuntimeOptions&>(settings) = {};
    return settings;
  };
  return shim::run(argv, settings.node.ledger, read);
}
