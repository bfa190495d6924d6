#include "contest.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace bench {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// argv or environment as exec wants it; valid as long as the strings are.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> all;
  all.reserve(strings.size() + 1);
  for (const std::string& string : strings)
    all.push_back(const_cast<char*>(string.c_str()));
  all.push_back(nullptr);
  return all;
}

// A program ready to be started: what costs the driver time is done before the clock runs.
class Command {
 public:
  Command(const std::vector<std::string>& argv, const std::vector<std::string>& environment, int output)
      : name_(argv.front()), argv_(pointers(argv)), environment_(pointers(environment)) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command() { posix_spawn_file_actions_destroy(&actions_); }

  Result<pid_t> start() const {
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, name_.c_str(), &actions_, nullptr, argv_.data(), environment_.data());
    if (error != 0) return sys_error(error, "run `{}`", name_);
    return pid;
  }

  Result<void> finish(pid_t pid) const {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) return make_error("`{}` failed with wait status {:#x}", name_, status);
    return {};
  }

 private:
  std::string name_;
  std::vector<char*> argv_;
  std::vector<char*> environment_;
  posix_spawn_file_actions_t actions_{};
};

Result<double> time_once(const Command& command) {
  const double start = now();
  const pid_t pid = TRY(command.start());
  TRY_VOID(command.finish(pid));
  return now() - start;
}

}  // namespace

Result<void> run_contest(std::vector<Contestant>& contestants, const std::vector<std::string>& environment) {
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null.ok()) return sys_error(errno, "open `/dev/null`");
  unsigned rounds = 0;
  for (const Contestant& contestant : contestants)
    rounds = std::max(rounds, contestant.runs);
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      // Each begins a round as often as the others, so that none always follows the same neighbour.
      Contestant& contestant = contestants[(i + round) % contestants.size()];
      // The number of runs due by the end of this round.
      const unsigned due = static_cast<unsigned>(std::uint64_t{contestant.runs} * (round + 1) / rounds);
      const double spent = std::accumulate(contestant.seconds.begin(), contestant.seconds.end(), 0.0);
      if (contestant.seconds.size() >= due || spent > contestant.seconds_at_most) continue;
      contestant.seconds.push_back(TRY(time_once(Command(contestant.argv, environment, null.get()))));
    }
  }
  return {};
}

Result<std::string> output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return sys_error(errno, "create a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const Command command(argv, environment, write_end.get());
  const pid_t pid = TRY(command.start());
  write_end.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(read_end.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  TRY_VOID(command.finish(pid));
  return text;
}

std::string program(const std::string& name) {
  for (const char* directory : {"/usr/sbin/", "/usr/bin/"}) {
    if (::access((directory + name).c_str(), X_OK) == 0) return directory + name;
  }
  return "";
}

void print(const Measurement& measurement) {
  if (measurement.seconds.empty()) return;
  const auto rounded = [](double value, double scale) { return std::round(value * scale * 1e4) / 1e4; };
  nlohmann::ordered_json line{{"scene", measurement.scene}, {"contestant", measurement.contestant}};
  for (const double seconds : measurement.seconds)
    line["ms"].push_back(rounded(seconds, 1e3));
  for (const auto& [name, values] : measurement.more) {
    for (const double value : values)
      line["more"][name].push_back(rounded(value, 1));
  }
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace bench
