// Calls the functions of hook/claim as a driver of Dynamic Resource Allocation does after its start, once:
//   claim-call prepare|unprepare --root DIR --ledger DIR --config FILE --cdi DIR --uid UID [--hook PATH] [--pod UID]...
//     [--hca NAME[=MODE]]... [--admin NAME]... [--wait MS]
// prepare prints the answer as JSON. Exits with 1 after an error, with the error on stderr.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/claim/claims.hpp"

namespace {

using base::Json;

struct Arguments {
  hook::NodeSettings node;
  std::string cdi;
  std::string hook;
  hook::ClaimOfNode claim;
  long wait_ms = 0;
};

void add_hca(const std::string& text, bool is_admin, hook::ClaimOfNode& claim) {
  const auto [name, mode] = base::split_first(text, '=');
  hook::ClaimDevice device{.request = "hcas", .name = std::string(name), .hca = std::string(name)};
  for (char& c : device.name)
    c = c == '_' ? '-' : c;
  device.is_admin = is_admin;
  if (!mode.empty()) device.mode = hook::parse_mode(mode);
  claim.devices.push_back(std::move(device));
}

Arguments parse(int count, char** values) {
  Arguments arguments;
  arguments.claim = {.uid = {}, .space = "team", .name = "nics", .pods = {}, .devices = {}};
  const std::map<std::string, std::function<void(const char*)>> options = {
      {"--root", [&](const char* value) { arguments.node.root = value; }},
      {"--ledger", [&](const char* value) { arguments.node.ledger = value; }},
      {"--config",
       [&](const char* value) {
         arguments.node.config = {value, "", true};
       }},
      {"--cdi", [&](const char* value) { arguments.cdi = value; }},
      {"--hook", [&](const char* value) { arguments.hook = value; }},
      {"--uid", [&](const char* value) { arguments.claim.uid = arguments.claim.name = value; }},
      {"--pod", [&](const char* value) { arguments.claim.pods.emplace_back(value); }},
      {"--hca", [&](const char* value) { add_hca(value, false, arguments.claim); }},
      {"--admin", [&](const char* value) { add_hca(value, true, arguments.claim); }},
      {"--wait", [&](const char* value) { arguments.wait_ms = std::atol(value); }},
  };
  for (int i = 2; i + 1 < count; i += 2)
    options.at(values[i])(values[i + 1]);
  return arguments;
}

}  // namespace

int main(int count, char** values) {
  const Arguments arguments = parse(count, values);
  const hook::ClaimSettings settings{.node = arguments.node, .cdi_directory = arguments.cdi, .hook = arguments.hook};
  base::Log log = base::Log::to_stderr("claim-call");
  const auto deadline = base::from_now(std::chrono::milliseconds(arguments.wait_ms));
  hook::sweep_claims(settings, log);
  if (std::string_view(values[1]) == "unprepare") {
    const auto done = hook::unprepare_claim(arguments.claim.uid, settings, log, deadline);
    if (!done) log.error(done.error());
    return done ? 0 : 1;
  }
  const auto prepared = hook::prepare_claim(arguments.claim, settings, log, deadline);
  if (!prepared) {
    log.error(prepared.error());
    return 1;
  }
  Json devices = Json::array();
  for (const hook::PreparedDevice& device : prepared->devices)
    devices.push_back(Json{{"request", device.request}, {"name", device.name}, {"cdi", device.cdi_names}});
  std::puts(devices.dump().c_str());
  return 0;
}
