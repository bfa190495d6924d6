#include "shim/nri/wire/dispatcher.hpp"

#include <cerrno>

#include "fabric/text.hpp"
#include "shim/nri/wire/convert.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace shim {

using fabric::Error;
using fabric::Result;

namespace {

// Of a pod with its container. Arguments and environment are at most 2 MiB (execve), Kubernetes' annotations 256 KiB;
// in memory a list of empty elements is up to fifty times as long.
constexpr std::size_t kMaxMessage = std::size_t{4} << 20;

template <typename T>
Result<void> parse(T& message, std::string_view bytes, std::string_view what) {
  if (bytes.size() > kMaxMessage)
    return Error{fmt::format("{} of {} bytes: the limit is {}", what, bytes.size(), kMaxMessage), EMSGSIZE};
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  return Error{fmt::format("{} of {} bytes is not valid protobuf", what, bytes.size()), EINVAL};
}

// Bit of an event in the mask that subscribes to it.
std::int32_t event_bit(Event event) {
  return 1 << (static_cast<std::int32_t>(event) - 1);
}

}  // namespace

struct NriDispatcher::Method {
  std::string_view name;
  Result<std::string> (NriDispatcher::*handle)(std::string_view payload) = nullptr;
  Event event = Event::kCreateContainer;  // of those without handle: delivered, and answered by an empty message
};

const NriDispatcher::Method NriDispatcher::kMethods[] = {
    {"Configure", &NriDispatcher::configure},
    {"Synchronize", &NriDispatcher::synchronize},
    {"Shutdown", &NriDispatcher::shutdown},
    {"CreateContainer", &NriDispatcher::create_container},
    {"StateChange", &NriDispatcher::state_change},
    {"UpdateContainer", nullptr, Event::kUpdateContainer},
    {"StopContainer", nullptr, Event::kStopContainer},
    // Since NRI 0.12.0; before, a StateChange each.
    {"RunPodSandbox", nullptr, Event::kRunPodSandbox},
    {"StopPodSandbox", nullptr, Event::kStopPodSandbox},
    {"RemovePodSandbox", nullptr, Event::kRemovePodSandbox},
    {"PostCreateContainer", nullptr, Event::kPostCreateContainer},
    {"StartContainer", nullptr, Event::kStartContainer},
    {"PostStartContainer", nullptr, Event::kPostStartContainer},
    {"PostUpdateContainer", nullptr, Event::kPostUpdateContainer},
    {"RemoveContainer", nullptr, Event::kRemoveContainer},
};

Result<std::string> NriDispatcher::dispatch(std::string_view service, std::string_view method,
                                            std::string_view payload) {
  if (service != kPluginService) return Error{fmt::format("service {}", fabric::printable(service)), ENOSYS};
  for (const Method& known : kMethods) {
    if (known.name != method) continue;
    if (!configured_ && known.handle != &NriDispatcher::configure)
      return Error{fmt::format("{} before Configure", method), EAGAIN};
    return known.handle != nullptr ? (this->*known.handle)(payload) : deliver_request(known.event, payload);
  }
  return Error{fmt::format("method {}", fabric::printable(method)), ENOSYS};
}

Result<std::string> NriDispatcher::configure(std::string_view payload) {
  wire::ConfigureRequest request;
  TRY_VOID(parse(request, payload, "ConfigureRequest"));
  std::int32_t events = 0;
  for (const Event event : TRY(handler_.configure(take_runtime_info(request))))
    events |= event_bit(event);
  // NRI reads it as a wish for all events.
  if (events == 0) return Error{"the plugin subscribes to no event", EINVAL};
  configured_ = true;
  wire::ConfigureResponse response;
  response.set_events(events);
  return response.SerializeAsString();
}

// The runtime closes the connection when `more` is not answered by the same.
Result<std::string> NriDispatcher::synchronize(std::string_view payload) {
  if (!synchronizing_) handler_.synchronize_begin();
  synchronizing_ = false;  // what comes after a failure begins anew
  const bool more = TRY(take_found(payload));
  synchronizing_ = more;
  if (!more) {
    TRY_VOID(handler_.synchronize_end());
    synchronized_ = true;
  }
  wire::SynchronizeResponse response;
  response.set_more(more);
  return response.SerializeAsString();
}

// One pod or container in memory at a time. Whether more parts follow.
Result<bool> NriDispatcher::take_found(std::string_view payload) {
  bool more = false;
  WireReader reader(payload);
  while (true) {
    auto field = reader.next();
    if (!field) return Error{"SynchronizeRequest: " + field.error().message, EINVAL};
    if (!*field) return more;
    if ((*field)->is_bytes(1)) {
      wire::PodSandbox pod;
      TRY_VOID(parse(pod, (*field)->bytes, "PodSandbox"));
      handler_.found(take_pod(pod));
    } else if ((*field)->is_bytes(2)) {
      wire::Container container;
      TRY_VOID(parse(container, (*field)->bytes, "Container"));
      handler_.found(take_container(container));
    } else if ((*field)->is_varint(3)) {
      more = (*field)->value != 0;
    }
  }
}

Result<std::string> NriDispatcher::create_container(std::string_view payload) {
  wire::PodContainerRequest request;
  TRY_VOID(parse(request, payload, "CreateContainerRequest"));
  const NriPod pod = take_pod(*request.mutable_pod());
  const NriContainer container = take_container(*request.mutable_container());
  return to_wire(TRY(handler_.create_container(pod, container))).SerializeAsString();
}

Result<std::string> NriDispatcher::state_change(std::string_view payload) {
  wire::StateChangeEvent change;
  TRY_VOID(parse(change, payload, "StateChangeEvent"));
  const NriPod pod = take_pod(*change.mutable_pod());
  const NriContainer container = take_container(*change.mutable_container());
  TRY_VOID(deliver(static_cast<Event>(change.event()), pod, container));
  return std::string();
}

Result<std::string> NriDispatcher::shutdown(std::string_view /*payload*/) {
  handler_.shutdown();
  return std::string();
}

Result<std::string> NriDispatcher::deliver_request(Event event, std::string_view payload) {
  wire::PodContainerRequest request;
  TRY_VOID(parse(request, payload, "request"));
  TRY_VOID(deliver(event, take_pod(*request.mutable_pod()), take_container(*request.mutable_container())));
  return std::string();
}

Result<void> NriDispatcher::deliver(Event event, const NriPod& pod, const NriContainer& container) {
  switch (event) {
    case Event::kRunPodSandbox:
      return handler_.run_pod_sandbox(pod);
    case Event::kStopPodSandbox:
      return handler_.stop_pod_sandbox(pod);
    case Event::kRemovePodSandbox:
      return handler_.remove_pod_sandbox(pod);
    case Event::kPostCreateContainer:
      return handler_.post_create_container(pod, container);
    case Event::kStartContainer:
      return handler_.start_container(pod, container);
    case Event::kPostStartContainer:
      return handler_.post_start_container(pod, container);
    case Event::kUpdateContainer:
      return handler_.update_container(pod, container);
    case Event::kPostUpdateContainer:
      return handler_.post_update_container(pod, container);
    case Event::kStopContainer:
      return handler_.stop_container(pod, container);
    case Event::kRemoveContainer:
      return handler_.remove_container(pod, container);
    case Event::kCreateContainer:
      break;  // not a change of state: it needs an answer
  }
  return {};  // nor are events that this version does not know
}

}  // namespace shim
