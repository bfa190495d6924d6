// rdma-init: the ENTRYPOINT ["rdma-init", "--"] of training images.
#include <fmt/core.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "init/doctor.hpp"
#include "init/environ.hpp"
#include "init/exec.hpp"
#include "init/format_env.hpp"
#include "init/image.hpp"
#include "init/resolve.hpp"
#include "init/starter.hpp"
#include "init/surroundings.hpp"
#include "init/topo.hpp"

namespace init {
namespace {

constexpr std::string_view kUnknownRemedy = "rename or unset it; ENVIRONMENT in rdma-init(1) lists the variables";
constexpr const char* kPathRemedy = "correct the path or its permissions";
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitRefused = 78;  // EX_CONFIG of sysexits.h: --require or --strict not met

// Writes the complete text to stdout. Returns 1 on an error, such as a closed pipe or a full disk.
int print(const Log& log, std::string_view text) {
  const int failed = base::write_all(STDOUT_FILENO, text);
  if (failed == 0) return 0;
  log.error(base::sys_error(failed, "write to stdout").message);
  return kExitFailure;
}

// Returns the warnings as a value of RDMA_INIT_NOTE. Characters that a shell obeys are replaced: printable() would
// escape them, and enroot removes quotes.
std::string note_of(const Decision& decision) {
  const bool none = decision.status == Status::kNone;
  std::string note = none ? decision.summary : "";
  for (const Check& warning : decision.warnings)  // none if no port is used
    note += (note.empty() ? "" : "; ") + line_of(warning);
  if (none && !decision.remedy.empty()) note += "; remedy: " + decision.remedy;
  constexpr std::string_view kFrom = "();`$|&<>'\"";
  constexpr std::string_view kTo = "[],        ";
  for (char& c : note) {
    if (const std::size_t at = kFrom.find(c); at != kFrom.npos) c = kTo[at];
  }
  return base::one_line(note);
}

void log_decision(const Log& log, const Decision& decision, const std::string& note) {
  // Shows a note that this run has found too only once.
  const bool is_new = !note.empty() && !base::printable(note_of(decision)).starts_with(note);
  const std::string noted = is_new ? "; note of the node: " + note : "";
  // Leaves out the summary of status none if a refusal by --require follows, which has the same text.
  const bool is_shown =
      decision.status != Status::kNone || !decision.refusal || !decision.refusal->starts_with("--require");
  if (decision.status != Status::kNone) {
    log.info(decision.summary + noted);
  } else if (is_shown) {
    log.warning(decision.summary + noted, decision.remedy);
  }
  for (const Check& remark : decision.remarks)
    log.info(remark.message);
  for (const auto* warnings : {&decision.warnings, &decision.asides}) {
    for (const Check& warning : *warnings)
      log.warning(warning.message, warning.remedy);
  }
  for (const std::string& reason : decision.notes)
    log.debug(reason);
  for (const PortReport& port : decision.ports) {
    log.debug(fmt::format("{}:{} {}: {}", base::printable(port.device), port.port, port.used ? "used" : "not used",
                          port.reason));
  }
  if (decision.refusal) log.error(*decision.refusal + (is_shown ? "" : noted), decision.refusal_remedy);
}

// Adds the variables with which a later run of rdma-init decides alike: a nested entrypoint has no options.
void add_for_later_runs(const Options& options, Decision& decision) {
  if (decision.mark.empty()) return;
  decision.env.insert(decision.env.end(), options.narrowing.begin(), options.narrowing.end());
  // Leaves out the host's name for a snapshot, which is of another machine.
  if (!options.snapshot && options.root.empty()) decision.mark += fmt::format(";{}{}", kHostEntry, this_host());
  decision.env.emplace_back(kExportsName, decision.mark);
}

// Adds the variables for a container whose environment is --environ FILE: those of the job that FILE lacks, because an
// entrypoint sees FILE only, and the warnings, because nothing else shows them to the user.
void add_for_container(const Options& options, Decision& decision) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(decision.env, name, &Variables::value_type::first) != decision.env.end();
  };
  const std::string note = options.note.empty() && !options.policy.exports.empty() ? note_of(decision) : "";
  if (!note.empty()) decision.env.emplace_back("RDMA_INIT_NOTE", note);
  for (const auto& variable : options.job) {
    if (!has(variable.first)) decision.env.push_back(variable);
  }
}

int run_env(const Options& options, const Log& log, Decision decision) {
  log_decision(log, decision, options.note);
  add_for_later_runs(options, decision);
  if (!options.environ_file.empty()) add_for_container(options, decision);
  const auto text = options.format == EnvFormat::kDotenv ? format_dotenv(decision)
                    : options.format == EnvFormat::kJson ? format_json(decision)
                                                         : format_sh(decision);
  if (!text) {
    log.error(text.error().message);
    return kExitFailure;
  }
  // If the decision is refused, a shell must get nothing to eval. JSON is printed: its ports and kept values show the
  // cause.
  if (decision.refusal && options.format != EnvFormat::kJson) return kExitRefused;
  const int code = print(log, *text);
  return code == 0 && decision.refusal ? kExitRefused : code;
}

int run_doctor(const Options& options, const Log& log, const Resolved& resolved) {
  const auto& [inventory, settings, decision, stopped_by, lent] = resolved;
  auto checks = check_up(inventory, settings, decision);
  if (!options.note.empty()) checks.push_back({"note", Verdict::kNote, "note of the node: " + options.note});
  const auto add = [&](const std::vector<Check>& more) { checks.insert(checks.end(), more.begin(), more.end()); };
  add(check_providers(inventory, settings, options.policy, decision));
  add(check_other_values(inventory, settings, options.policy, decision));
  add(check_hcas(inventory, options.policy, decision));
  // Checks image and surroundings only without a snapshot, which has no data about them.
  if (!options.snapshot) {
    add(check_image(inventory, decision, read_image(options.root, decision.efa), lent));
    add(check_surroundings(inventory, settings, decision, read_surroundings(options.root)));
  }
  // A snapshot or file tree is of another machine.
  const Starter starter = options.snapshot || !options.root.empty() ? Starter() : find_starter("");
  for (Check& check : checks)
    check.remedy = remedy_for(starter, std::move(check.remedy));
  const int code =
      print(log, options.json ? doctor_json(decision, checks) : doctor_text(decision, checks, options.all));
  return is_fit(checks) ? code : kExitFailure;
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
  return print(log, fabric::write_snapshot(resolved.inventory));
}

// Executes the trainer. Returns only if that failed, or with --reap after the trainer has ended.
int run_program(const Options& options, char* const* environment, const Log& log, Decision decision) {
  log_decision(log, decision, options.note);
  if (decision.refusal) return kExitRefused;
  add_for_later_runs(options, decision);
  Environment trainer(environment);
  for (const auto& [name, value] : decision.env)
    trainer.set(name, value);
  raise_memlock();
  const bool reaps = options.reap && !stops_for_parent(options.program);
  return reaps ? run_reaping(options.program, trainer.envp()) : exec_command(options.program, trainer.envp());
}

int run_command(const Options& options, char* const* environment) {
  const Log log(options.log);
  if (options.command == Command::kHelp) return print(log, help_text(options.topic));
  if (options.command == Command::kVersion) return print(log, "rdma-init " RDMA_INIT_VERSION "\n");
  for (const std::string& warning : options.warnings)
    log.warning(warning, kUnknownRemedy);
  auto resolved = resolve(options, environment, log);
  if (!resolved) {
    log.error(resolved.error().message, base::remedy_of(resolved.error()));
    return kExitFailure;
  }
  if (resolved->stopped_by) return 128 + *resolved->stopped_by;
  switch (options.command) {
    case Command::kEnv:
      return run_env(options, log, std::move(resolved->decision));
    case Command::kDoctor:
      return run_doctor(options, log, *resolved);
    case Command::kTopo:
      return print(log, (options.json ? topo_json : topo_text)(resolved->inventory, resolved->decision));
    case Command::kSnapshot:
      return run_snapshot(options, log, std::move(*resolved));
    default:
      return run_program(options, environment, log, std::move(resolved->decision));
  }
}

}  // namespace
}  // namespace init

int main(int argc, char** argv) {
  // guard_standard_descriptors() must be the first call, because every later call may open descriptors.
  init::guard_standard_descriptors();
  const init::Log log(init::LogLevel::kInfo);
  // A privileged program must not read variables that its unprivileged caller controls.
  if (::getauxval(AT_SECURE) != 0) {
    log.error("does not run set-user-ID, set-group-ID or with file capabilities", "chmod u-s,g-s; setcap -r");
    return init::kExitFailure;
  }
  try {
    auto options = init::parse_options(argc, argv, environ);
    if (options && !options->environ_file.empty()) {
      // The variables of the container are options too.
      auto loaded = init::load_environ(options->environ_file);
      options = loaded ? init::parse_options(argc, argv, environ) : std::move(loaded).error();
      if (options) options->job = *std::move(loaded);
    }
    // Checks the prefix: below a directory that does not exist or cannot be entered, each lookup would find nothing,
    // and the machine would seem to have no HCA.
    if (options && !options->tree().empty() && ::access((options->tree() + "/.").c_str(), F_OK) != 0)
      options = base::sys_error(errno, "read `{}`", base::printable(options->tree()));
    if (!options) {
      log.error(options.error().message,
                base::remedy_of(options.error(), options.error().code ? init::kPathRemedy : "see rdma-init --help"));
      return init::kExitUsage;
    }
    return init::run_command(*options, environ);
    // Only bad_alloc is expected here.
  } catch (const std::exception&) {
    log.error("not enough memory", "raise the memory limit");
    return init::kExitFailure;
  }
}
