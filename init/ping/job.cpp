#include "init/ping/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <optional>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "init/doctor.hpp"
#include "init/exec.hpp"
#include "init/options.hpp"
#include "init/ping/causes.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/meeting_point.hpp"
#include "init/ping/open_rail.hpp"
#include "init/ping/rails.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/report.hpp"
#include "init/ping/tester.hpp"
#include "init/ping/totals.hpp"
#include "init/resolve.hpp"

namespace init::ping {
namespace {

using fabric::printable;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

// The facts of a rank before it meets other ranks.
struct Self {
  Place place;
  Hello hello;
  NcclChoice choice;
  std::string bootstrap;  // netdev; empty: none
  std::vector<fabric::Netdev> netdevs;
};

std::string read_host() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()).substr(0, kLongestName) : "?";
}

// Ranks with this text share kernel and network namespace, so they share HCAs and addresses. Host names may repeat.
std::string read_node() {
  const auto boot = fabric::sysfs::read_file("/proc/sys/kernel/random/boot_id", 4096);
  struct stat space {};
  ::stat("/proc/self/ns/net", &space);
  const std::string text = fabric::value_or(boot, read_host());
  return fmt::format("{}:{}", fabric::trim(text).substr(0, kLongestName / 2 + 8), space.st_ino);
}

// Reads this container as rdma-init does. The options of rdma-init in the environment are for its own decision, except
// the version of NCCL.
Result<Self> read_self(const Options& options, char* const* environment, const Log& log) {
  Self self;
  self.place = TRY(find_place(options.given, environment));
  char name[] = "rdma-ping";
  char command[] = "doctor";
  std::array<char*, 3> arguments{name, command, nullptr};
  init::Options reading = TRY(init::parse_options(2, arguments.data(), environment));
  reading.wait_seconds = 0;
  Resolved resolved = TRY(resolve(reading, environment, log, true));
  const Setting* const image = find_setting(resolved.settings, "NCCL_VERSION");
  auto version = reading.policy.nccl_version;
  if (!version && image) version = nccl::parse_version(image->value);
  self.choice = nccl_choice(resolved.inventory, resolved.settings, version.value_or(nccl::kNewest));
  self.bootstrap = bootstrap_netdev(resolved.inventory, resolved.settings).value_or("");
  self.netdevs = std::move(resolved.inventory.netdevs);
  self.hello = {kProtocol,   self.place.token, self.place.rank,   self.place.size,
                read_node(), read_host(),      self.choice.rails, self.choice.unused};
  return self;
}

bool is_of(const fabric::Netdev& netdev, const SocketAddress& address) {
  return std::ranges::any_of(netdev.addresses, [&](const fabric::InterfaceAddress& own) {
    const std::string text = to_string(own.address);
    return to_string(address).starts_with(own.address.is_ipv4() ? text + ":" : "[" + text + "]:");
  });
}

// Returns where rank 0 listens: the address of the meeting point, if this container has it. Otherwise it is the
// one on the netdev of NCCL's bootstrap: the name may belong to a Kubernetes service, or get its DNS entry later.
Result<SocketAddress> listening_address(const Self& self, const Log& log) {
  const auto named = resolve_host(self.place.host, self.place.port);
  for (const SocketAddress& address : named ? *named : std::vector<SocketAddress>()) {
    const auto owner = std::ranges::find_if(self.netdevs, [&](const auto& netdev) { return is_of(netdev, address); });
    if (owner == self.netdevs.end()) continue;
    if (!self.bootstrap.empty() && owner->name != self.bootstrap) {
      log.warning(fmt::format("the meeting point {} is on {}, and NCCL's bootstrap uses {}", to_string(address),
                              printable(owner->name), printable(self.bootstrap)),
                  "name an address of the same network, or set NCCL_SOCKET_IFNAME");
    }
    return address;
  }
  const auto netdev = std::ranges::find(self.netdevs, self.bootstrap, &fabric::Netdev::name);
  if (netdev == self.netdevs.end() || netdev->addresses.empty()) {
    fabric::Error error = fabric::make_error("`{}` is no address of rank 0, and no netdev fits NCCL's bootstrap",
                                             printable(self.place.host));
    error.hint = "check --master or MASTER_ADDR, and NCCL_SOCKET_IFNAME";
    return error;
  }
  const std::string text = to_string(netdev->addresses.front().address);
  return TRY(resolve_host(text, self.place.port)).front();
}

// --- Rank 0: this process is the referee, its child tests like any other rank.

[[noreturn]] void test_in_child(Self& self, UniqueFd socket, double limit) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Channel channel(std::move(socket));
  const auto welcome = greet(channel, self.hello, clock_seconds() + limit);
  if (welcome) static_cast<void>(follow(channel, *welcome, self.choice).has_value());
  ::_exit(0);
}

// Ends the child. The kernel may hold it in a call of a verb, so there is a limit.
void end_child(pid_t child) {
  constexpr int kTurns = 20;
  constexpr timespec kPause{0, 50'000'000};
  for (int turn = 0; turn < kTurns && ::waitpid(child, nullptr, WNOHANG) == 0; ++turn) {
    if (turn == kTurns / 2) ::kill(child, SIGKILL);
    ::nanosleep(&kPause, nullptr);
  }
}

// Writes the text to stdout. Returns false on an error, or if the reader of a pipe takes nothing for kPrintSeconds: the
// job must go on.
bool print(std::string_view text) {
  constexpr int kPrintSeconds = 10;
  while (!text.empty()) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (TEMP_FAILURE_RETRY(::poll(&out, 1, kPrintSeconds * 1000)) == 0) {
      errno = ETIMEDOUT;
      return false;
    }
    // A pipe that is ready takes this many bytes without a wait.
    const ssize_t count =
        TEMP_FAILURE_RETRY(::write(STDOUT_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF)));
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool write_file(const std::string& path, std::string_view text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  return file.ok() &&
         TEMP_FAILURE_RETRY(::write(file.get(), text.data(), text.size())) == static_cast<ssize_t>(text.size());
}

void report(const Options& options, const Outcome& outcome, const std::vector<Cause>& causes, const Log& log) {
  if (!print(options.json ? json_report(outcome, causes) : text_report(outcome, causes)))
    log.error(sys_error(errno, "write to stdout").message);
  if (!options.svg.empty() && !write_file(options.svg, svg_report(outcome, causes)))
    log.error(sys_error(errno, "write `{}`", printable(options.svg)).message);
}

// Returns the outcome of a job with one rank.
Outcome alone(const Self& self) {
  Outcome outcome;
  outcome.size = 1;
  outcome.members.push_back({0, self.hello.host, {}, self.hello.rails, self.hello.unused, {}});
  return outcome;
}

// Returns the verdict for all ranks: the first cause with its remedy.
Verdict verdict_of(const Outcome& outcome, const std::vector<Cause>& causes) {
  std::string summary = summary_of(outcome, causes);
  if (is_good(outcome, causes)) return {0, std::move(summary), ""};
  if (has_no_rails(outcome)) return {kExitNoRdma, std::move(summary), "run `rdma-init doctor` in this container"};
  if (causes.empty()) return {kExitFailure, std::move(summary), ""};
  const std::string more =
      causes.size() == 1 ? "" : fmt::format(" (and {})", count_of(causes.size() - 1, "more cause"));
  return {kExitFailure, causes.front().message.substr(0, kLongestText - more.size()) + more, causes.front().remedy};
}

Result<int> run_referee(const Options& options, Self& self, const Log& log) {
  const SocketAddress address = TRY(listening_address(self, log));
  MeetingPoint point = TRY(MeetingPoint::listen(address, self.place.size));
  log.info(fmt::format("rank 0 waits at {} for {} ranks, at most {:.0f} s", to_string(address), self.place.size,
                       options.timeout));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return sys_error(errno, "socketpair");
  UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "fork");
  if (child == 0) {
    own.reset();
    point.leave();
    test_in_child(self, std::move(other), options.timeout);
  }
  other.reset();
  const RaisedFileLimit limit;
  Referee referee(
      {self.place.size, self.place.token, options.timeout, options.all_rails, options.bytes, options.bandwidth},
      clock_seconds());
  point.add(std::move(own));
  std::vector<Cause> causes;
  Verdict verdict;
  point.run(referee, log, [&](const Outcome& outcome) {
    causes = find_causes(outcome);
    verdict = verdict_of(outcome, causes);
    return verdict;
  });
  end_child(child);
  if (verdict.code == kExitNoRdma) log.error(verdict.text, verdict.remedy);
  report(options, referee.outcome(), causes, log);
  return verdict.code;
}

// --- Every other rank.

// Joins at the meeting point. Another program may accept the connection and close it: rank 0 of a job that just ends,
// or a proxy in front of rank 0.
Result<std::pair<Channel, Welcome>> join(const Self& self, double deadline) {
  constexpr timespec kPause{0, 200'000'000};
  for (;;) {
    Channel channel = TRY(Channel::connect(self.place.host, self.place.port, deadline));
    auto welcome = greet(channel, self.hello, deadline);
    if (welcome) return std::pair(std::move(channel), std::move(*welcome));
    const int code = welcome.error().code;
    if ((code != ECONNRESET && code != EPIPE) || clock_seconds() >= deadline) return std::move(welcome).error();
    ::nanosleep(&kPause, nullptr);
  }
}

Result<int> run_rank(const Options& options, Self& self, const Log& log) {
  auto joined = join(self, clock_seconds() + options.timeout);
  if (!joined) {
    joined.error().hint =
        "check that rank 0 runs, --master or MASTER_ADDR, and the firewall for this TCP port; NCCL's "
        "bootstrap needs the same network";
    return std::move(joined).error();
  }
  const Verdict verdict = TRY(follow(joined->first, joined->second, self.choice));
  const std::string text = fabric::one_line(verdict.text);
  if (verdict.code == 0) {
    log.info(text);
  } else {
    log.error(text, verdict.remedy.empty() ? "read the report of rank 0" : fabric::one_line(verdict.remedy));
  }
  return verdict.code;
}

// A container's first program has no default action for these signals.
void end_at_signals() {
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action.sa_handler = [](int signal) { ::_exit(128 + signal); };
      ::sigaction(number, &action, nullptr);
    }
  }
}

int print_or_fail(std::string_view text, const Log& log) {
  if (print(text)) return 0;
  log.error(sys_error(errno, "write to stdout").message);
  return kExitFailure;
}

}  // namespace

int run(const Options& options, char* const* environment, const Log& log) {
  if (options.command == Command::kHelp) return print_or_fail(help_text(), log);
  if (options.command == Command::kVersion) return print_or_fail("rdma-ping " RDMA_INIT_VERSION "\n", log);
  auto self = read_self(options, environment, log);
  if (!self) {
    log.error(self.error().message, fabric::remedy_of(self.error()));
    return kExitUsage;
  }
  // A reader of the report may end early. The command gets back the action that it was started with.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  int code = 0;
  if (self->place.size == 1) {
    report(options, alone(*self), {}, log);
  } else {
    end_at_signals();
    auto done = (self->place.rank == 0 ? run_referee : run_rank)(options, *self, log);
    if (!done.has_value()) {
      log.error(done.error().message, fabric::remedy_of(done.error()));
      return kExitFailure;
    }
    code = *done;
  }
  if (code != 0 || options.program == nullptr) return code;
  ::signal(SIGPIPE, before);
  return exec_command(options.program, environment);
}

}  // namespace init::ping
