// Answers the requests of a runtime. Decides which containers request HCAs; the worker grants them (grant_worker.hpp).
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

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/grant/node.hpp"
#include "shim/nri/grants_of.hpp"
#include "shim/nri/options.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/nri/worker.hpp"

namespace shim {

// Detects the end of pods: watches the files in /var/run/netns or a similar directory by which runtimes keep the
// network namespaces of pods.
//
// The runtime's events do not report the end of every pod: a containerd that was restarted does not report the end of
// pods from before its restart, because it restores the state of containers only (syncPlugin() in
// internal/nri/nri.go, 1.7.24 and 2.1.9).
class NamespaceEnds {
 public:
  // Errors: root's limit of inotify instances is reached, or no memory.
  static Result<NamespaceEnds> open();
  // Readable when a file was removed from a watched directory.
  int fd() const { return events_.get(); }
  // Watches a namespace's file. key: the key of the grant that the namespace may own. A second call for the same file
  // and key costs only a lookup. Errors: the directory cannot be watched.
  Result<void> watch(const std::string& path, const std::string& key);
  // Returns the keys of the namespaces that may have ended since the last call. Stops watching these namespaces.
  // nullopt: events were lost, so any watched namespace may have ended.
  std::optional<std::set<std::string>> take();

 private:
  base::UniqueFd events_;
  std::map<int, std::string> directories_;  // watched directories, by watch descriptor
  // Keys by path. A path has several if its namespace was replaced before take() was called.
  std::map<std::string, std::set<std::string>> paths_;
};

// The current configuration of the administrator, and a worker that was started with it. A changed configuration
// replaces the worker. Outlives the connections to the runtime.
class ConfiguredWorker {
 public:
  // The references must outlive this object.
  ConfiguredWorker(const NriPluginOptions& options, const base::Log& log);

  // Sets the engine, which determines which annotations may request HCAs. Starts the worker process at once, so that
  // the first container does not have to wait for its start.
  void set_engine(hook::Engine engine);
  hook::Engine engine() const { return node_.engine; }
  // Call before set_engine(), which starts the worker with this value.
  void set_engine_memlock(const std::optional<hook::Rlimit>& limit) { node_.engine_memlock = limit; }
  const std::string& root() const { return node_.root; }
  // Returns the administrator's configuration. Parses config.json again only if its text has changed.
  const Result<hook::Config>& read_config();
  Result<hook::Ledger> open_ledger() { return kept_ledger_.open(); }
  // Sends a job to the worker process (Worker::ask()).
  Result<std::string> ask(std::string_view job, Worker::Clock::time_point deadline) {
    return worker_.ask(job, deadline);
  }

 private:
  const NriPluginOptions& options_;
  const base::Log& log_;
  hook::NodeSettings node_;
  hook::KeptLedger kept_ledger_;  // ledger of the plugin; the worker opens its own
  hook::ConfigVersion version_;   // version of the files in texts_
  std::vector<hook::ConfigText> texts_;
  std::optional<Result<hook::Config>> config_;
  Worker worker_;
};

// A container that was created while rdma-nri was not connected.
struct Ungranted {
  std::string id;
  std::string label;  // "NAMESPACE/POD/CONTAINER", for messages
  pid_t pid = 0;      // PID of its first process; 0: not reported
};

class RdmaPlugin : public NriHandler {
 public:
  using Clock = Worker::Clock;

  // engine: nullopt: derived from the runtime's name. work_is_due: called when the plugin has work that must wait until
  // no request is being answered. The references must outlive this object.
  RdmaPlugin(ConfiguredWorker& worker, const base::Log& log, NamespaceEnds& ends, std::optional<hook::Engine> engine,
             std::function<void()> work_is_due)
      : worker_(worker), log_(log), ends_(ends), engine_(engine), work_is_due_(std::move(work_is_due)) {}

  Result<std::vector<Event>> configure(const RuntimeInfo& runtime) override;
  void synchronize_begin() override;
  void found(const NriPod& pod) override;
  void found(const NriContainer& container) override;
  Result<void> synchronize_end() override;
  // Errors: for CreateContainer only.
  Result<std::string> answer(NriRequest request) override;
  // Returns the reason to refuse a container: a later plugin removed or replaced a device node of a granted HCA. Empty:
  // there is no reason.
  std::string refusal(const NriValidation& validation) override;

  // Returns true if Synchronize took longer than the runtime waits. NRI 0.6.1 then stops calling this plugin without
  // notice.
  bool synchronized_late() const { return synchronized_late_; }
  // Returns name and version of the runtime: "containerd v2.1.9". nullopt: Synchronize has not ended yet.
  const std::optional<std::string>& synchronized_with() const { return synchronized_with_; }
  // Returns the running containers that request HCAs but have no grant, as far as found since the last call. The log
  // already has a warning about each.
  std::vector<Ungranted> take_ungranted() { return std::exchange(ungranted_, {}); }
  // Called between requests. If a Synchronize or release_later() has marked this as due, or if events about namespaces
  // were lost, lets the worker release all grants that no container uses any more. Otherwise lets it release the grants
  // of the namespaces that have ended.
  void release_rest();

  // Time at which to query the runtime's containers again. Synchronize did not list some containers with a grant, but
  // they are so young that their creation may not have finished. nullopt: there are no such containers.
  std::optional<Clock::time_point> recount_at() const { return recount_at_; }
  // Returns the ids of the young containers because of which recount_at() has a value, and resets recount_at().
  std::set<std::string> take_spared();
  // Marks the containers `ids`, which the runtime does not know, so that release_rest() releases their grants.
  void end_unknown(std::set<std::string> ids);

 private:
  Result<std::string> call_worker(NriRequest& request);
  // Returns the answer to a request that needs no worker, as most requests. nullopt: the pod or container of the
  // request requests HCAs, or has a grant to release. requesting: its `spec` is set; gets what understand_spec()
  // finds, if the event allocates.
  Result<std::optional<std::string>> answer_here(const NriRequest& request, hook::ContainerRequest& requesting);
  bool may_have_claim(const std::string& pod_uid);
  Result<bool> lacks_grant(NriRequest request);
  Result<hook::ContainerRequest> understand(hook::ContainerSpec spec);
  void note_granted_nodes(const NriContainer& container, std::string_view response);
  void release_later(const std::string& id);
  void watch(const std::string& netns, const std::string& key);
  void recover_all();
  // Returns a deadline: now plus this share (0 to 1) of the runtime's request timeout.
  Clock::time_point within(double share) const;

  ConfiguredWorker& worker_;
  const base::Log& log_;
  NamespaceEnds& ends_;
  std::optional<hook::Engine> engine_;
  std::function<void()> work_is_due_;
  std::chrono::milliseconds request_timeout_{2000};
  std::string runtime_;
  std::optional<std::string> synchronized_with_;

  bool validates_ = false;
  // Device nodes that the last CreateContainer granted, for refusal(). One value is enough: the runtime validates a
  // container before it creates the next one.
  struct {
    std::string id;
    std::vector<hook::SpecDevice> nodes;
  } granted_;

  Clock::time_point synchronize_began_;
  bool synchronized_late_ = false;
  bool release_is_due_ = false;
  std::set<std::string> to_release_;  // containers with unbound grants to release
  std::set<std::string> spared_;      // young containers for recount_at()
  std::optional<Clock::time_point> recount_at_;
  // The next members are the state of one Synchronize. requesting_pods_: pods with annotations about RDMA. doubtful_:
  // the result of doubtful_containers() when this Synchronize began, without the unbound containers that the runtime
  // has listed since. The list is not queried again, because another instance may have made grants meanwhile. pods_:
  // pod ids by container id, for users whose grant lacks their pod id.
  std::map<std::string, NriPod> requesting_pods_;
  Doubtful doubtful_;
  std::map<std::string, std::string> pods_;
  std::vector<Ungranted> ungranted_;
};

}  // namespace shim
