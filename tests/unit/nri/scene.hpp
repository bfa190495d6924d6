// A handler that writes down what it is told, and messages of a runtime as bytes, by NRI's field numbers.
#pragma once

#include <string>
#include <vector>

#include "shim/nri/wire/session.hpp"
#include "unit/nri/peer.hpp"

namespace shim_peer {

using fabric::Error;
using fabric::Result;

// Values as NRI 0.12.2 sends them, fields that the plugin does not know included.
std::string pod_message(std::string_view id);
std::string container_message(std::string_view id);
std::string create_message();
shim::NriPod pod_value(std::string_view id);
shim::NriContainer container_value(std::string_view id);

class Recorder : public shim::NriHandler {
 public:
  std::vector<std::string> told;
  std::vector<shim::Event> wanted = {shim::Event::kRunPodSandbox, shim::Event::kCreateContainer,
                                     shim::Event::kRemoveContainer};
  shim::RuntimeInfo runtime;
  shim::NriPod pod;
  shim::NriContainer container;
  shim::ContainerAdjustment adjustment;
  std::optional<Error> failure;  // of the next request

  Result<std::vector<shim::Event>> configure(const shim::RuntimeInfo& info) override;
  void synchronize_begin() override { told.emplace_back("synchronize"); }
  void found(const shim::NriPod& each) override { told.push_back("found pod " + each.id); }
  void found(const shim::NriContainer& each) override { told.push_back("found container " + each.id); }
  Result<void> synchronize_end() override { return tell("synchronized"); }
  Result<std::string> answer(const shim::NriRequest& request) override;

 private:
  Result<void> tell(const std::string& what);
};

}  // namespace shim_peer
