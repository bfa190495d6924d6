#include "hook/program/metrics_command.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "base/process/sandbox.hpp"
#include "hook/admin/metrics/metrics.hpp"
#include "hook/admin/metrics/serve.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/pool_counts.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {
namespace {

// Returns the counts of the pools with "expect". Errors: the number is not certain.
Result<std::vector<PoolCount>> pool_counts_of(const NodeSettings& node) {
  const Config config = TRY(read_config(config_paths_below(node.root)));
  return read_pool_counts(node, config);
}

// names: the names for a series of each container; nullptr: only sums.
Result<void> collect_metrics(const Options& options, GrantNames* names, const Write& write, Ledger::Unread& unread) {
  const std::string& ledger = options.node.ledger;
  Held held;
  std::string head = grant_info_head();
  const auto add = [&](const Grant& grant) -> Result<void> {
    held.add(grant);
    if (!names) return {};
    const std::string info = grant_info(grant, [&](const GrantUser& user) { return names->of(user); });
    if (!info.empty()) write(std::exchange(head, "") + info);
    return {};
  };
  TRY(Ledger::for_each_recorded_at(ledger, add, &unread));
  const auto pools = pool_counts_of(options.node);
  if (pools && !pools->empty()) write(prometheus_text(pool_samples(*pools)));
  if (!pools) unread.push_back(pools.error());
  return write_metrics(ledger, held, options.node.root, write);
}

}  // namespace

Result<void> show_metrics(const Options& options, const Log& log) {
  GrantNames names(options.node.root);
  Ledger::Unread unread;
  auto done = collect_metrics(
      options, options.grants ? &names : nullptr,
      [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }, unread);
  for (const Error& error : unread)
    log.error(error);
  return done;
}

Result<void> listen_for_metrics(const Options& options) {
  const ListenAddress address = TRY(parse_listen_address(*options.listen));
  // A server runs for months and parses requests of other users. The server therefore drops descriptors and environment
  // of its caller.
  TRY_VOID(isolate());
  const Log log;
  GrantNames names(options.node.root);
  std::string reported;  // the last reported error, so that it is not logged at each scrape
  const auto read = [&]() -> Result<std::string> {
    std::string text;
    Ledger::Unread unread;
    auto done = collect_metrics(
        options, &names, [&](const std::string& part) { text += part; }, unread);
    // Forgets the names of ended containers, which would fill the memory over months.
    names.forget_others();
    const std::string first = unread.empty() ? "" : unread.front().message;
    // An error is logged only if it differs from the last one: otherwise a damaged record would be logged at each
    // scrape.
    if (std::exchange(reported, first) != first && !unread.empty()) log.error(unread.front());
    if (!done) return std::move(done).error();
    return text;
  };
  return serve_metrics(address, read, log);
}

}  // namespace hook
