#include "init/ping/job.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <optional>

#include "base/process/helper.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"
#include "init/exec.hpp"
#include "init/options.hpp"
#include "init/ping/causes.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/describe.hpp"
#include "init/ping/meeting_point.hpp"
#include "init/ping/open_rail.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/report.hpp"
#include "init/ping/self.hpp"
#include "init/ping/take_part.hpp"
#include "init/ping/tester.hpp"
#include "init/ping/totals.hpp"

namespace init::ping {
namespace {

// --- Rank 0: this process is the referee, its child tests like any other rank.

[[noreturn]] void test_in_child(Self& self, UniqueFd socket, double longest) {
  Channel channel(std::move(socket));
  // The referee has the other end of the channel, and reports a failure.
  const auto welcome = greet(channel, self.place.token, self.join, clock_seconds() + longest);
  if (welcome) {
    const double deadline = end_of_waits(*welcome, longest);
    static_cast<void>(follow(channel, make_tester(self.choice, deadline), deadline).has_value());
  }
  ::_exit(0);
}

// Writes the text to stdout. Returns kExitFailure after an error, or if the reader of a pipe takes nothing for
// kPrintSeconds: the job must go on.
int print(std::string_view text, const Log& log) {
  constexpr int kPrintSeconds = 10;
  const auto failed = [&](int error) {
    log.error(sys_error(error, "write to stdout").message);
    return kExitFailure;
  };
  while (!text.empty()) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (TEMP_FAILURE_RETRY(::poll(&out, 1, kPrintSeconds * 1000)) == 0) return failed(ETIMEDOUT);
    // A pipe that is ready takes this many bytes without a wait.
    const ssize_t count =
        TEMP_FAILURE_RETRY(::write(STDOUT_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF)));
    if (count < 0) return failed(errno);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

bool write_file(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  return file.ok() &&
         TEMP_FAILURE_RETRY(::write(file.get(), text.data(), text.size())) == static_cast<ssize_t>(text.size());
}

void report(const Options& options, const Outcome& outcome, const std::vector<Cause>& causes, const Log& log) {
  print(options.json ? json_report(outcome, causes) : text_report(outcome, causes), log);
  if (!options.svg.empty() && !write_file(options.svg, svg_report(outcome, causes)))
    // Only warns, because the job can go on.
    log.warning(sys_error(errno, "write `{}`", printable(options.svg)).message, "name a file that this user can write");
}

// Returns the outcome of a job with one rank.
Outcome alone(const Self& self) {
  Outcome outcome;
  outcome.size = 1;
  outcome.members.push_back({0, self.join.host, {}, self.join.rails, self.join.unused, {}});
  return outcome;
}

// Returns the verdict for all ranks: the first cause with its remedy.
Verdict verdict_of(const Outcome& outcome, const std::vector<Cause>& causes) {
  std::string summary = summary_of(outcome, causes);
  if (is_good(outcome, causes)) return {0, std::move(summary), ""};
  if (has_no_rails(outcome)) return {kExitNoRdma, std::move(summary), "run `rdma-init doctor` where the rank runs"};
  if (causes.empty()) return {kExitFailure, std::move(summary), ""};
  const std::string more =
      causes.size() == 1 ? "" : fmt::format(" (and {})", count_of(causes.size() - 1, "more cause"));
  return {kExitFailure, causes.front().message.substr(0, kLongestText - more.size()) + more, causes.front().remedy};
}

Rules rules_of(const Options& options, const Self& self) {
  Rules rules{self.place.size, options.timeout, options.all_rails, options.bytes, options.bandwidth};
  rules.all_pairs = options.all_pairs;
  rules.seed = seed_of(self.place.token);
  return rules;
}

Result<int> run_referee(const Options& options, Self& self, const Log& log) {
  const SocketAddress address = TRY(listening_address(self, log));
  MeetingPoint point = TRY(MeetingPoint::listen(address, self.place.size, self.place.token));
  log.info(fmt::format("rank 0 waits at {} for {} ranks, at most {:.0f} s", to_string(address), self.place.size,
                       options.timeout));
  auto [child, own] = base::start_helper(SOCK_STREAM, [&](pid_t, UniqueFd ours, UniqueFd theirs) {
    ours.reset();
    point.leave();
    test_in_child(self, std::move(theirs), longest_job(self.join.rails.size(), rules_of(options, self)));
  });
  if (!own.ok()) return sys_error(errno, "socketpair");
  if (child < 0) return sys_error(errno, "fork");
  const RaisedFileLimit limit;
  Referee referee(rules_of(options, self), clock_seconds());
  point.add(std::move(own));
  std::vector<Cause> causes;
  Verdict verdict;
  point.run(referee, log, [&] {
    causes = find_causes(referee.outcome());
    verdict = verdict_of(referee.outcome(), causes);
    return verdict;
  });
  end_child(child);
  if (verdict.code == kExitNoRdma) log.error(verdict.text, verdict.remedy);
  report(options, referee.outcome(), causes, log);
  return verdict.code;
}

// --- Every other rank.

Result<int> run_rank(const Options& options, Self& self, const Log& log) {
  // The own options limit the wait, because rank 0 may be broken. Rank 0 may measure bandwidth or test all pairs
  // although this rank has no --bw and no --pairs.
  Rules rules = rules_of(options, self);
  rules.bandwidth = rules.all_pairs = true;
  Part part{self.place.host,
            self.place.port,
            self.place.token,
            self.join,
            options.timeout,
            longest_job(self.join.rails.size(), rules),
            [&](double deadline) { return make_tester(self.choice, deadline); }};
  auto taken = take_part(part, log);
  if (!taken) {
    if (taken.error().hint.empty()) {
      taken.error().hint =
          "check that rank 0 runs, --master or MASTER_ADDR, and the firewall for this TCP port; NCCL's "
          "bootstrap needs the same network";
    }
    return std::move(taken).error();
  }
  const Verdict& verdict = *taken;
  const std::string text = base::one_line(verdict.text);
  if (verdict.code == 0) {
    log.info(text);
  } else {
    log.error(text, verdict.remedy.empty() ? "read the report of rank 0" : base::one_line(verdict.remedy));
  }
  return verdict.code;
}

// The kernel does not kill a container's first program by these signals, so a handler ends it.
void end_at_signals() {
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action.sa_handler = [](int signal) { ::_exit(128 + signal); };
      ::sigaction(number, &action, nullptr);
    }
  }
}

}  // namespace

int run(const Options& options, char* const* environment, const Log& log) {
  if (options.command == Command::kHelp) return print(help_text(), log);
  if (options.command == Command::kVersion) return print("rdma-ping " RDMA_INIT_VERSION "\n", log);
  for (const std::string& warning : options.warnings)
    log.warning(warning, "rename or unset it; ENVIRONMENT in rdma-ping(1) lists the variables");
  auto self = read_self(options, environment, log);
  if (!self) {
    log.error(self.error().message, base::remedy_of(self.error(), "see rdma-ping --help"));
    return kExitUsage;
  }
  // The hook of enroot has no other way to its user.
  const std::string note = own_variable("RDMA_INIT_NOTE");
  if (!note.empty() && self->place.rank == 0) log.info("note of the node: " + printable(note, kLongestNote));
  // A reader of the report may end early. The command gets back the action that it was started with.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  int code = 0;
  if (self->place.size == 1) {
    report(options, alone(*self), {}, log);
  } else {
    end_at_signals();
    auto done = (self->place.rank == 0 ? run_referee : run_rank)(options, *self, log);
    if (!done.has_value()) {
      log.error(done.error().message, base::remedy_of(done.error()));
      return kExitFailure;
    }
    code = *done;
  }
  if (code != 0 || options.program == nullptr) return code;
  ::signal(SIGPIPE, before);
  return exec_command(options.program, environment);
}

}  // namespace init::ping
