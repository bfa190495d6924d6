// rdma-nri's answers to a runtime.
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

#include "shim/nri/grants.hpp"
#include "shim/nri/wire/handler.hpp"

namespace shim {

// A container that was created while no plugin took part.
struct Ungranted {
  std::string id;
  std::string label;  // "NAMESPACE/POD/CONTAINER", for people
  pid_t pid = 0;      // of its first process; 0: not told
};

class RdmaPlugin : public NriHandler {
 public:
  using Clock = std::chrono::steady_clock;

  // engine: nullopt: told by the runtime's name. work_is_due: called when there is something to do between two
  // requests, when the runtime does not wait for an answer. Both references must outlive it.
  RdmaPlugin(Grants& grants, const hook::Log& log, std::optional<hook::Engine> engine,
             std::function<void()> work_is_due)
      : grants_(grants), log_(log), engine_(engine), work_is_due_(std::move(work_is_due)) {}

  fabric::Result<std::vector<Event>> configure(const RuntimeInfo& runtime) override;
  void synchronize_begin() override;
  void found(const NriPod& pod) override;
  void found(const NriContainer& container) override;
  fabric::Result<void> synchronize_end() override;
  // Never an error.
  fabric::Result<void> run_pod_sandbox(const NriPod& pod) override;
  fabric::Result<void> stop_pod_sandbox(const NriPod& pod) override;
  fabric::Result<void> remove_pod_sandbox(const NriPod& pod) override;
  fabric::Result<ContainerAdjustment> create_container(const NriPod& pod, const NriContainer& container) override;
  fabric::Result<void> stop_container(const NriPod& pod, const NriContainer& container) override;
  fabric::Result<void> remove_container(const NriPod& pod, const NriContainer& container) override;

  // Synchronize took longer than the runtime waits: NRI 0.6.1 never asks this plugin again, and does not say so.
  bool synchronized_late() const { return synchronized_late_; }
  // What was found to lack its grant since the last call, told in the log.
  std::vector<Ungranted> take_ungranted() { return std::exchange(ungranted_, {}); }
  // After Synchronize: what is nobody's any more is returned.
  void return_what_is_left();

 private:
  // Part of the time that the runtime waits, from now on.
  Clock::time_point within(double share) const;

  Grants& grants_;
  const hook::Log& log_;
  std::optional<hook::Engine> engine_;
  std::function<void()> work_is_due_;
  std::chrono::milliseconds request_timeout_{2000};

  Clock::time_point synchronize_began_;
  bool synchronized_late_ = false;
  bool returns_due_ = false;
  // Of Synchronize: what matters of pods whose annotations speak of RDMA, and those that held a grant when it began and
  // that the runtime has not named since. Not what holds one now: another instance may have given it meanwhile.
  std::map<std::string, NriPod> asking_pods_;
  std::set<std::string> unnamed_;
  std::vector<Ungranted> ungranted_;
};

}  // namespace shim
