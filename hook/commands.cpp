#include "hook/commands.hpp"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "hook/config/check_config.hpp"
#include "hook/decide.hpp"
#include "hook/devices.hpp"
#include "hook/process/sandbox.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kExitDone = 0;
constexpr int kExitFailure = 1;

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void print(const Json& json) {
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// A ledger that exists already: looking must not make one.
Result<std::optional<Ledger>> existing_ledger(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::optional<Ledger>();
  return std::optional<Ledger>(TRY(Ledger::open(path)));
}

Result<Plan> dry_run(const Options& options, const Log& log) {
  const std::string text = TRY(read_bundle_config(*options.bundle));
  const Container container = TRY(understand(text, options));
  Plan plan;
  if (container.asked.request) {
    const auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
    // Somebody else's node has nothing to do with who holds what here.
    const bool elsewhere = options.snapshot && options.ledger == kLedgerPath;
    const auto ledger = elsewhere ? std::nullopt : TRY(existing_ledger(options.ledger));
    const Owner owner = owner_of(container.spec, container_owner("plan", *options.bundle));
    plan = TRY(decide(container, inventory, ledger ? &*ledger : nullptr, owner, {"plan", "plan", {}}, false));
  }
  plan.warnings.insert(plan.warnings.begin(), container.asked.warnings.begin(), container.asked.warnings.end());
  if (!options.json) {
    for (const std::string& warning : plan.warnings)
      log.warning(warning);
  }
  return plan;
}

int run_plan(const Options& options, const Log& log) {
  const auto plan = dry_run(options, log);
  if (!plan) {
    log.error(plan.error());
    if (options.json) print(Json{{"error", plan.error().message}, {"hint", plan.error().hint}});
    return kExitFailure;
  }
  if (options.json) {
    print(plan_json(*plan));
  } else {
    print(plan_text(*plan));
  }
  return kExitDone;
}

Result<void> show_devices(const Options& options) {
  const Config config = TRY(read_config(options.config));
  const auto inventory = TRY(read_whole_node(config, options));
  const bool elsewhere = options.snapshot && options.ledger == kLedgerPath;
  const auto ledger = elsewhere ? std::nullopt : TRY(existing_ledger(options.ledger));
  const auto grants = ledger ? TRY(ledger->list()) : std::vector<Grant>();
  if (options.json) {
    print(devices_json(inventory, config, grants));
  } else {
    print(devices_text(inventory, config, grants));
  }
  return {};
}

Result<void> recover(const Options& options) {
  const auto ledger = TRY(existing_ledger(options.ledger));
  if (!ledger) return {};
  const Recovered recovered = TRY(ledger->recover());
  if (options.json) {
    print(Json{{"returned", recovered.returned}});
    return {};
  }
  for (const std::string& label : recovered.returned)
    print(fmt::format("returned the grant of {}\n", label));
  return {};
}

int exit_code(const Result<void>& result, const Log& log) {
  if (result) return kExitDone;
  log.error(result.error());
  return kExitFailure;
}

// The stages run with nothing of the caller's but three descriptors, and with the system calls they need.
int run_stage(const Options& options) {
  if (auto isolated = isolate(); !isolated) return exit_code(isolated, Log());
  Log log = Log::with_syslog();
  const bool live = options.command == Command::kCreateRuntime;
  if (auto restricted = restrict_syscalls(live ? Reach::kContainer : Reach::kLedger); !restricted) {
    return exit_code(restricted, log);
  }
  switch (options.command) {
    case Command::kPrecreate:
      return exit_code(precreate(options, log), log);
    case Command::kPoststop:
      // The container is gone whatever is said here: an error would only keep the engine from cleaning up.
      exit_code(poststop(options, log), log);
      return kExitDone;
    default:
      return exit_code(create_runtime(options, log), log);
  }
}

}  // namespace

int run_command(const Options& options) {
  const Log log;
  switch (options.command) {
    case Command::kHelp:
      print(std::string(kHelp));
      return kExitDone;
    case Command::kVersion:
      print(std::string("rdma-hook " RDMA_INIT_VERSION "\n"));
      return kExitDone;
    case Command::kPlan:
      return run_plan(options, log);
    case Command::kDevices:
      return exit_code(show_devices(options), log);
    case Command::kRecover:
      return exit_code(recover(options), log);
    case Command::kCheckConfig:
      return check_config(options.config, options.json);
    default:
      return run_stage(options);
  }
}

}  // namespace hook
