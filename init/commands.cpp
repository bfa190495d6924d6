#include "init/commands.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "fabric/remedy.hpp"
#include "fabric/snapshot.hpp"
#include "fabric/text.hpp"
#include "init/doctor.hpp"
#include "init/exec.hpp"
#include "init/format_env.hpp"
#include "init/image.hpp"
#include "init/other_values.hpp"
#include "init/reap.hpp"
#include "init/resolve.hpp"
#include "init/surroundings.hpp"
#include "init/topo.hpp"

namespace init {
namespace {

// Everything or an error: a reader that went away, a full disk.
bool print(const Log& log, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      log.error(fabric::sys_error(errno, "write to stdout").message);
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void report(const Log& log, const Decision& decision) {
  if (decision.status == Status::kNone) {
    // --require says the same again.
    if (!decision.refusal || !decision.refusal->starts_with("--require"))
      log.warning(decision.summary, decision.remedy);
  } else {
    log.info(decision.summary);
  }
  for (const std::string& remark : decision.remarks)
    log.info(remark);
  for (const std::string& warning : decision.warnings)
    log.warning(warning);
  for (const std::string& aside : decision.asides)
    log.warning(aside);
  for (const std::string& note : decision.notes)
    log.debug(note);
  for (const PortReport& port : decision.ports) {
    log.debug(fmt::format("{}:{} {}: {}", fabric::printable(port.device), port.port, port.used ? "used" : "not used",
                          port.reason));
  }
  if (decision.refusal) log.error(*decision.refusal, decision.refusal_remedy);
}

int run_env(const Options& options, const Log& log, const Decision& decision) {
  report(log, decision);
  const auto text = options.format == EnvFormat::kDotenv ? format_dotenv(decision)
                    : options.format == EnvFormat::kJson ? format_json(decision)
                                                         : format_sh(decision);
  if (!text) {
    log.error(text.error().message);
    return kExitFailure;
  }
  // What was refused must not be eval'ed all the same; JSON says it in its ports and kept values.
  if (decision.refusal && options.format != EnvFormat::kJson) return kExitRefused;
  if (!print(log, *text)) return kExitFailure;
  return decision.refusal ? kExitRefused : 0;
}

int run_doctor(const Options& options, const Log& log, const Resolved& resolved) {
  auto checks = check_up(resolved.inventory, resolved.settings, resolved.decision);
  for (Check& check : check_other_values(resolved.inventory, resolved.settings, options.policy, resolved.decision))
    checks.push_back(std::move(check));
  // A snapshot says nothing of the image and of what surrounds it.
  if (!options.snapshot) {
    const Image image = read_image(options.root, resolved.decision.efa);
    for (Check& check : check_image(resolved.inventory, resolved.decision, image))
      checks.push_back(std::move(check));
    const Surroundings around = read_surroundings(options.root);
    for (Check& check : check_surroundings(resolved.inventory, resolved.decision, around))
      checks.push_back(std::move(check));
  }
  const bool written =
      print(log, options.json ? doctor_json(resolved.decision, checks) : doctor_text(resolved.decision, checks));
  return written && is_fit(checks) ? 0 : kExitFailure;
}

int run_snapshot(const Options& options, const Log& log, Resolved resolved) {
  if (!options.snapshot) {
    utsname system{};
    uname(&system);
    resolved.inventory.about =
        nlohmann::ordered_json{{"program", "rdma-init " RDMA_INIT_VERSION},
                               {"kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine)}}
            .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return print(log, fabric::write_snapshot(resolved.inventory)) ? 0 : kExitFailure;
}

int run_program(const Options& options, char* const* environment, const Log& log, const Decision& decision) {
  report(log, decision);
  if (decision.refusal) return kExitRefused;
  Environment trainer(environment);
  for (const auto& [name, value] : decision.env)
    trainer.set(name, value);
  raise_memlock();
  return options.reap ? run_reaping(options.program, trainer.envp()) : exec_command(options.program, trainer.envp());
}

}  // namespace

int run_command(const Options& options, char* const* environment) {
  const Log log(options.log);
  if (options.command == Command::kHelp) return print(log, help_text()) ? 0 : kExitFailure;
  if (options.command == Command::kVersion) return print(log, "rdma-init " RDMA_INIT_VERSION "\n") ? 0 : kExitFailure;
  const bool full = options.command != Command::kExec && options.command != Command::kEnv;
  auto resolved = resolve(options, environment, log, full);
  if (!resolved) {
    log.error(resolved.error().message, fabric::remedy_of(resolved.error()));
    return kExitFailure;
  }
  if (resolved->stopped_by) return 128 + *resolved->stopped_by;
  switch (options.command) {
    case Command::kEnv:
      return run_env(options, log, resolved->decision);
    case Command::kDoctor:
      return run_doctor(options, log, *resolved);
    case Command::kTopo:
      return print(log, topo_text(resolved->inventory, resolved->decision)) ? 0 : kExitFailure;
    case Command::kSnapshot:
      return run_snapshot(options, log, std::move(*resolved));
    default:
      return run_program(options, environment, log, resolved->decision);
  }
}

}  // namespace init
