// Calls the functions of hook/claim as a driver of Dynamic Resource Allocation does, once:
//   claim-call prepare|unprepare|none --root DIR --ledger DIR --config FILE --cdi DIR --uid UID [--hook PATH]
//     [--pod UID]... [--hca NAME[=MODE]]... [--admin NAME]... [--wait MS] [--turns N]
// prepare prints the answer as JSON. --turns: before this, prepares and ends the claim so often, and keeps what it has
// read, as a driver that runs for a while; prints the microseconds of each Prepare. Exits with 1 after an error, with
// the error on stderr.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"
#include "fabric/kept_node.hpp"
#include "hook/claim/claims.hpp"
#include "hook/ledger/ledger.hpp"

namespace {

using base::Json;

struct Arguments {
  hook::NodeSettings node;
  std::string cdi;
  hook::ClaimOfNode claim;
  long wait_ms = 0;
  long turns = 0;
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
      {"--uid", [&](const char* value) { arguments.claim.uid = arguments.claim.name = value; }},
      {"--pod", [&](const char* value) { arguments.claim.pods.emplace_back(value); }},
      {"--hca", [&](const char* value) { add_hca(value, false, arguments.claim); }},
      {"--admin", [&](const char* value) { add_hca(value, true, arguments.claim); }},
      {"--wait", [&](const char* value) { arguments.wait_ms = std::atol(value); }},
      {"--turns", [&](const char* value) { arguments.turns = std::atol(value); }},
  };
  for (int i = 2; i + 1 < count; i += 2)
    options.at(values[i])(values[i + 1]);
  return arguments;
}

// An inventory that is read sooner after an event of the kernel is not kept (fabric/kept_node.cpp).
constexpr std::chrono::milliseconds kQuiet{1200};

void take_turns(const Arguments& arguments, const hook::ClaimSettings& settings, base::Log& log) {
  for (long turn = 0; turn < arguments.turns; ++turn) {
    if (turn < 3) std::this_thread::sleep_for(kQuiet);
    base::Timing timing;
    if (!hook::prepare_claim(arguments.claim, settings, log, base::Deadline())) std::exit(1);
    std::printf("%llu\n", static_cast<unsigned long long>(timing.total()));
    if (!hook::unprepare_claim(arguments.claim.uid, settings, log, base::Deadline())) std::exit(1);
  }
}

}  // namespace

int main(int count, char** values) {
  Arguments arguments = parse(count, values);
  fabric::KeptNode kept_node{fabric::NodeEvents()};
  hook::KeptLedger kept_ledger(arguments.node.ledger);
  if (arguments.turns > 0) {
    kept_node.open_events();
    arguments.node.kept = &kept_node;
    arguments.node.kept_ledger = &kept_ledger;
  }
  const hook::ClaimSettings settings{.node = arguments.node, .cdi_directory = arguments.cdi};
  base::Log log = base::Log::to_stderr("claim-call");
  const auto deadline = base::from_now(std::chrono::milliseconds(arguments.wait_ms));
  hook::sweep_claims(settings, log);
  take_turns(arguments, settings, log);
  if (std::string_view(values[1]) == "none") return 0;
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
  for (const hook::PreparedDevice& device : *prepared)
    devices.push_back(Json{{"request", device.request}, {"name", device.name}, {"cdi", device.cdi_names}});
  std::puts(devices.dump().c_str());
  return 0;
}
