// Any bytes as NRI's requests, up to a plugin's handler and its answer.
#include <string>

#include "require.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace {

using base::Result;
using fuzz::require;

constexpr const char* kMethods[] = {
    "Configure",        "Synchronize",        "CreateContainer",     "StateChange",        "StopContainer",
    "UpdateContainer",  "RunPodSandbox",      "StopPodSandbox",      "Shutdown",           "RemovePodSandbox",
    "StartContainer",   "RemoveContainer",    "PostCreateContainer", "PostStartContainer", "",
    "UpdatePodSandbox", "PostUpdateContainer"};

// Answers with the content of the request, so that all content that is read is also written.
class Mirror : public shim::NriHandler {
 public:
  int begun = 0;
  int ended = 0;
  bool refuses = false;

  Result<std::vector<shim::Event>> configure(const shim::RuntimeInfo& /*runtime*/) override {
    return std::vector{shim::Event::kCreateContainer};
  }
  void synchronize_begin() override { ++begun; }
  void found(const shim::NriPod& /*pod*/) override { require(begun > ended, "found after the beginning"); }
  void found(const shim::NriContainer& /*container*/) override { require(begun > ended, "found after the beginning"); }
  Result<void> synchronize_end() override {
    ended = begun;
    if (refuses) return base::make_error("refused");
    return {};
  }
  Result<std::string> answer(shim::NriRequest request) override {
    const auto& pod = request.pod;
    const auto& container = request.container;
    if (refuses) return base::make_error("refused {}", container.id.size());
    if (request.event != shim::Event::kCreateContainer) return std::string();
    shim::ContainerAdjustment adjustment{.annotations = container.annotations,
                                         .mounts = {},
                                         .env = pod.annotations,
                                         .devices = {},
                                         .memlock = container.memlock};
    for (const auto& mount : container.mounts)
      adjustment.mounts.push_back({mount.destination, "", "bind", {}});
    for (const auto& device : container.devices)
      adjustment.devices.push_back({device.path, 1, 2});
    return shim::create_response(adjustment);
  }
};

void check_answer(const Result<std::string>& answer) {
  if (!answer) return fuzz::require_one_line(answer.error().message, "an error");
  shim::WireReader reader(*answer);
  for (;;) {
    const auto field = reader.next();
    require(field.has_value(), "an answer is protobuf");
    if (!*field) return;
  }
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  Mirror mirror;
  shim::NriDispatcher dispatcher(mirror);
  if (data.ConsumeBool()) check_answer(dispatcher.dispatch({shim::kPluginService, "Configure", ""}));
  for (int i = 0; i < 8 && data.remaining_bytes() > 0; ++i) {
    mirror.refuses = data.ConsumeIntegralInRange(0, 7) == 0;
    const char* method = data.PickValueInArray(kMethods);
    const bool last = data.ConsumeBool();
    const std::string payload = last ? data.ConsumeRemainingBytesAsString() : data.ConsumeRandomLengthString(200);
    check_answer(dispatcher.dispatch({shim::kPluginService, method, payload}));
  }
  require(mirror.ended <= mirror.begun, "each end has a begin");
}
