#include "hook/admin/cluster/config_command.hpp"

#include <poll.h>

#include <array>
#include <cstdio>
#include <utility>

#include "base/json/json.hpp"
#include "base/process/daemon_state.hpp"
#include "base/process/ending_signals.hpp"
#include "base/process/sandbox.hpp"
#include "base/text_digest.hpp"
#include "base/unique_fd.hpp"
#include "hook/admin/cluster/apply_config.hpp"
#include "hook/admin/cluster/config_source.hpp"
#include "hook/admin/cluster/note_pools.hpp"
#include "hook/config/read_config.hpp"

namespace hook {
namespace {

constexpr int kBurstMs = 100;  // one change of a directory causes several events within this time
// Some changes cause no event: changes of the node's own files, of a directory that was removed and made again, and of
// a file system without inotify. The files are therefore also read at this interval.
constexpr int kPollMs = 10'000;

const char* word_of(AppliedConfig::Outcome outcome) {
  if (outcome == AppliedConfig::Outcome::kRefused) return "refused";
  if (outcome == AppliedConfig::Outcome::kDue) return "due";
  return outcome == AppliedConfig::Outcome::kSame ? "unchanged" : "written";
}

std::string text_of(const NodeSettings& node, const AppliedConfig& applied) {
  std::string text;
  for (const ConfigProblem& problem : applied.problems)
    text += to_string(problem) + "\n";
  const bool refused = applied.outcome == AppliedConfig::Outcome::kRefused;
  const std::string index = applied.index.empty() ? "" : fmt::format("; node index {}", applied.index);
  return text + fmt::format("{}: {}: {}{}\n", word_of(applied.outcome),
                            refused ? "the node keeps its configuration" : node.config.cluster, applied.has, index);
}

void print_whole(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void log_event(const std::string& source, const NodeSettings& node, const AppliedConfig& applied, const Log& log) {
  const bool refused = applied.outcome == AppliedConfig::Outcome::kRefused;
  EventLine line(fmt::format("config_{}", word_of(applied.outcome)));
  line.add("file", node.config.cluster).add("from", source);
  line.add("digest", applied.digest.empty() ? "-" : applied.digest);
  if (!applied.index.empty()) line.add("node_index", applied.index);
  const ConfigProblem* const error = first_error(applied.problems);
  if (!refused) return log.info(line.text());
  // The first error among the problems is the reason of the refusal.
  if (error) line.add("because", error->message);
  log.error(Error{line.text(), 0, error ? error->remedy : ""});
}

// Compares the ConfigMap with the node's file. A difference that lasts shows that the process with --watch does not
// work: that process writes the file.
ProbedState probed(const std::string& source, const NodeSettings& node) {
  const AppliedConfig found = check_cluster_config(source, node);
  if (found.outcome == AppliedConfig::Outcome::kSame) return {true, found.has};
  if (found.outcome == AppliedConfig::Outcome::kDue)
    return {false, fmt::format("`{}` is not written yet; the node has: {}", node.config.cluster, found.has)};
  const ConfigProblem* const error = first_error(found.problems);
  return {false,
          fmt::format("refused: {}; the node keeps its configuration: {}", error ? to_string(*error) : "", found.has)};
}

// Waits for a change, at most kPollMs. Returns true if a signal asks this process to end.
bool wait_for_change(const UniqueFd& signals, const ConfigWatch& watch) {
  std::array<pollfd, 2> fds{{{signals.get(), POLLIN, 0}, {watch.fd(), POLLIN, 0}}};
  // After the first event the call waits kBurstMs more. A swap of the links of a ConfigMap is then complete, and is
  // read once.
  const bool changed = ::poll(fds.data(), fds.size(), kPollMs) > 0 && fds[0].revents == 0;
  if (changed && ::poll(fds.data(), 1, kBurstMs) > 0) return true;
  return fds[0].revents != 0;
}

// Calls note_pools() with the configuration that the node has now.
Result<void> note_pools_now(const NodeSettings& node) {
  return note_pools(node, TRY(read_config(node.config)));
}

void apply_on_change(const std::string& source, const NodeSettings& node, const Log& log, const UniqueFd& signals) {
  ConfigWatch watch(source);
  std::string reported;  // digest of the last report; an unchanged problem is reported once
  std::string unwatched;
  std::string unnoted;
  do {
    // The watch starts before the files are read, so that it reports a change during the read.
    const auto watched = watch.renew();
    if (watched) watch.take();
    const std::string why = watched ? "" : watched.error().message;
    const AppliedConfig applied = apply_cluster_config(source, node);
    const auto noted = note_pools_now(node);
    // A refusal is reported already, and its cause can be the same.
    const std::string cause = noted || applied.outcome == AppliedConfig::Outcome::kRefused ? "" : noted.error().message;
    if (std::exchange(unnoted, cause) != cause && !cause.empty()) log.warning(cause);
    // If the directory is missing, the refusal already reports the reason.
    if (std::exchange(unwatched, why) != why && !watched && applied.outcome != AppliedConfig::Outcome::kRefused)
      log.warning(why + fmt::format("; the directory is checked every {} s", kPollMs / 1000));
    const std::string text = text_of(node, applied);
    const std::string now = text_digest(applied.digest + "\n" + text);
    // A report that did not change is printed again only if the file was written.
    if (std::exchange(reported, now) == now && applied.outcome != AppliedConfig::Outcome::kWritten) continue;
    print_whole(text);
    log_event(source, node, applied, log);
  } while (!wait_for_change(signals, watch));
}

}  // namespace

Result<int> apply_config(const std::string& source, const NodeSettings& node, bool json, const Log& log) {
  TRY_VOID(restrict_to_config());
  const AppliedConfig applied = apply_cluster_config(source, node);
  const bool ok = applied.outcome != AppliedConfig::Outcome::kRefused;
  if (json) {
    const Json whole{{"ok", ok},
                     {"outcome", word_of(applied.outcome)},
                     {"file", node.config.cluster},
                     {"node_index", applied.index.empty() ? Json() : Json(applied.index)},
                     {"problems", problems_json(applied.problems)},
                     {"summary", applied.has}};
    print_whole(whole.dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
  } else {
    print_whole(text_of(node, applied));
  }
  log_event(source, node, applied, log);
  if (const auto noted = note_pools_now(node); ok && !noted) log.warning(noted.error().message);
  return ok ? 0 : 1;
}

Result<int> watch_config(const std::string& source, const NodeSettings& node, const Log& log) {
  // The signals come first, because the filter forbids sigprocmask(2).
  const UniqueFd signals = TRY(ending_signals());
  TRY_VOID(restrict_to_config());
  apply_on_change(source, node, log, signals);
  return 0;
}

Result<int> probe_config(const std::string& source, const NodeSettings& node) {
  TRY_VOID(restrict_to_config());
  return print_probe("config apply", probed(source, node));
}

}  // namespace hook
