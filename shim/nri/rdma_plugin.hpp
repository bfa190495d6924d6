// rdma-nri's answers to a runtime: who asks is found out here, what they get is the worker's to give
// (grant_worker.hpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/asking.hpp"
#include "hook/grant/node.hpp"
#include "shim/nri/holders.hpp"
#include "shim/nri/options.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/nri/worker.hpp"
#include "shim/result.hpp"

namespace shim {

// Ends of pods' network namespaces, told by the files that runtimes keep them with.
//
// containerd tells no plugin of the end of a pod that is older than the containerd that runs: after a restart it knows
// the state of containers only (syncPlugin() in internal/nri/nri.go, 1.7.24 and 2.1.9).
class NamespaceEnds {
 public:
  // Errors: root has no inotify instance left, or no memory.
  static Result<NamespaceEnds> open();
  // Readable: a file went from a directory of those that are watched.
  int fd() const { return events_.get(); }
  // From now on; again costs a lookup. Errors: its directory cannot be watched.
  Result<void> watch(const std::string& path);
  // Whether one of those has ended since the last call, or may have. It is watched no more.
  bool take();

 private:
  fabric::UniqueFd events_;
  std::map<int, std::string> directories_;  // by watch descriptor
  std::set<std::string> paths_;
};

// The administrator's configuration as it is now, and a worker that began with it: another one, another worker.
// Outlives the connections to the runtime.
class ConfiguredWorker {
 public:
  // Both must outlive it.
  ConfiguredWorker(const NriPluginOptions& options, const hook::Log& log);

  // engine: tells whose annotations these are. Starts the worker, so that the first container need not wait for it.
  void set_engine(hook::Engine engine);
  hook::Engine engine() const { return node_.engine; }
  // Before set_engine(): the worker begins with it.
  void set_engine_memlock(const std::optional<hook::Rlimit>& limit) { node_.engine_memlock = limit; }
  const std::string& root() const { return node_.root; }
  // config.json is parsed again when its text is another.
  const Result<hook::Config>& read_config();
  Result<hook::Ledger> open_ledger() const { return hook::Ledger::open(node_.ledger); }
  // As Worker::ask().
  Result<std::string> ask(std::string_view job, Worker::Clock::time_point deadline) {
    return worker_.ask(job, deadline);
  }

 private:
  const NriPluginOptions& options_;
  const hook::Log& log_;
  hook::NodeSettings node_;
  std::vector<hook::ConfigText> texts_;
  std::optional<Result<hook::Config>> config_;
  Worker worker_;
};

// A container that was created while no plugin took part.
struct Ungranted {
  std::string id;
  std::string label;  // "NAMESPACE/POD/CONTAINER", for people
  pid_t pid = 0;      // of its first process; 0: not told
};

class RdmaPlugin : public NriHandler {
 public:
  using Clock = Worker::Clock;

  // engine: nullopt: told by the runtime's name. work_is_due: called when there is something to do between two
  // requests, when the runtime does not wait for an answer. All references must outlive it.
  RdmaPlugin(ConfiguredWorker& worker, const hook::Log& log, NamespaceEnds& ends, std::optional<hook::Engine> engine,
             std::function<void()> work_is_due)
      : worker_(worker), log_(log), ends_(ends), engine_(engine), work_is_due_(std::move(work_is_due)) {}

  Result<std::vector<Event>> configure(const RuntimeInfo& runtime) override;
  void synchronize_begin() override;
  void found(const NriPod& pod) override;
  void found(const NriContainer& container) override;
  Result<void> synchronize_end() override;
  // Errors: of CreateContainer only.
  Result<std::string> answer(const NriRequest& request) override;
  // A later plugin has removed or replaced a node of an HCA that was granted.
  std::string refusal(const NriValidation& validation) override;

  // Synchronize took longer than the runtime waits: NRI 0.6.1 never asks this plugin again, and does not say so.
  bool synchronized_late() const { return synchronized_late_; }
  // The containers that were found to lack their grant since the last call; the log has a line for each.
  std::vector<Ungranted> take_ungranted() { return std::exchange(ungranted_, {}); }
  // After Synchronize, or the end of a namespace: has the worker return what no container holds any more.
  void return_what_is_left();

  // When to ask the runtime once more for the containers of grants that Synchronize spared, because their creation may
  // still have been under way. nullopt: there are none.
  std::optional<Clock::time_point> recount_at() const { return recount_at_; }
  // Those containers, and recount_at() is nullopt from here on.
  std::set<std::string> take_spared();
  // return_what_is_left() returns the grants of these containers, of which the runtime knows nothing.
  void end_unknown(std::set<std::string> ids);

 private:
  Result<std::string> ask_worker(const NriRequest& request);
  // Most pods and containers ask nothing and hold nothing.
  Result<bool> needs_worker(const NriRequest& request);
  Result<bool> lacks_grant(const NriPod& pod, const NriContainer& container);
  Result<hook::Asking> understand(hook::ContainerSpec spec);
  void note_granted_nodes(const NriContainer& container, std::string_view response);
  void release_later(const std::string& id);
  void watch(const std::string& netns);
  // Part of the time that the runtime waits, from now on.
  Clock::time_point within(double share) const;

  ConfiguredWorker& worker_;
  const hook::Log& log_;
  NamespaceEnds& ends_;
  std::optional<hook::Engine> engine_;
  std::function<void()> work_is_due_;
  std::chrono::milliseconds request_timeout_{2000};

  bool validates_ = false;
  // Of the last CreateContainer, which the runtime validates before it asks about another container.
  struct {
    std::string id;
    std::vector<Device> nodes;
  } granted_;

  Clock::time_point synchronize_began_;
  bool synchronized_late_ = false;
  bool returns_due_ = false;
  std::set<std::string> gone_;  // containers whose unbound grants are to be returned
  std::set<std::string> spared_;
  std::optional<Clock::time_point> recount_at_;
  // Of Synchronize: pods whose annotations speak of RDMA, and the doubtful_containers() of when it began, without the
  // unbound ones that the runtime has named since. Not what holds a grant now: another instance may have given it
  // meanwhile. Then the pods of those whose grant does not name theirs, by the container's id.
  std::map<std::string, NriPod> asking_pods_;
  Doubtful doubtful_;
  std::map<std::string, std::string> pods_;
  std::vector<Ungranted> ungranted_;
};

}  // namespace shim
