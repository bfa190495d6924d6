#include "shim/nri/wire/session.hpp"

#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "shim/nri/wire/nri.pb.h"
#include "shim/ttrpc/wire_fields.hpp"

namespace shim {
namespace {

// Returns true for the known events except CreateContainer, which needs an answer.
bool is_change(Event event) {
  return event >= Event::kRunPodSandbox && event <= Event::kRemoveContainer && event != Event::kCreateContainer;
}

// NRI version of this protocol. Runtimes before 0.12.0 ignore the field, later ones log it.
constexpr const char* kNriVersion = "v0.12.2";

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kOfNames = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-";

}  // namespace

struct NriDispatcher::Method {
  std::string_view name;
  Result<std::string> (NriDispatcher::*handle)(const Request& request) = nullptr;
  Event event = Event::kStateChange;  // event for handler_.answer(), if handle is nullptr
};

const NriDispatcher::Method NriDispatcher::kMethods[] = {
    {"Configure", &NriDispatcher::configure},
    {"Synchronize", &NriDispatcher::synchronize},
    {"Shutdown", &NriDispatcher::shutdown},
    {"StateChange", nullptr, Event::kStateChange},
    {"CreateContainer", nullptr, Event::kCreateContainer},
    {"UpdateContainer", nullptr, Event::kUpdateContainer},
    {"StopContainer", nullptr, Event::kStopContainer},
    // Methods since NRI 0.12.0. Earlier runtimes send a StateChange for each.
    {"RunPodSandbox", nullptr, Event::kRunPodSandbox},
    {"StopPodSandbox", nullptr, Event::kStopPodSandbox},
    {"RemovePodSandbox", nullptr, Event::kRemovePodSandbox},
    {"PostCreateContainer", nullptr, Event::kPostCreateContainer},
    {"StartContainer", nullptr, Event::kStartContainer},
    {"PostStartContainer", nullptr, Event::kPostStartContainer},
    {"PostUpdateContainer", nullptr, Event::kPostUpdateContainer},
    {"RemoveContainer", nullptr, Event::kRemoveContainer},
    // This method exists since NRI 0.10.0.
    {"ValidateContainerAdjustment", &NriDispatcher::validate},
};

Result<std::string> NriDispatcher::dispatch(const Request& request) {
  const std::string_view method = request.method;
  if (request.service != kPluginService)
    return Error{fmt::format("service {}", base::printable(request.service)), ENOSYS};
  for (const Method& known : kMethods) {
    if (known.name != method) continue;
    if (!configured_ && known.handle != &NriDispatcher::configure)
      // All other requests need the engine and the timeout, which the Configure request reports.
      return Error{fmt::format("the runtime sent {} before Configure", method), EAGAIN};
    return known.handle != nullptr ? (this->*known.handle)(request) : answer(known.event, request.payload);
  }
  return Error{fmt::format("method {}", base::printable(method)), ENOSYS};
}

// NRI before 0.7.0 does not report its request timeout. The timeout of the Configure request itself is then used: it is
// the same for every request.
Result<std::string> NriDispatcher::configure(const Request& request) {
  RuntimeInfo runtime = TRY(parse_configure(request.payload));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(request.timeout_ns));
  if (runtime.request_timeout_ms == 0) runtime.request_timeout_ms = left.count();
  std::uint32_t events = 0;
  for (const Event event : TRY(handler_.configure(runtime)))
    events |= 1U << (static_cast<std::int32_t>(event) - 1);
  // Zero is refused, because NRI interprets it as a subscription to all events.
  if (events == 0) return Error{"the plugin subscribes to no event", EINVAL};
  configured_ = true;
  std::string response;
  append_varint_field(response, 2, events);
  return response;
}

// Repeats the request's field `more` in the answer: without this field the runtime closes the connection.
Result<std::string> NriDispatcher::synchronize(const Request& request) {
  if (!synchronizing_) handler_.synchronize_begin();
  synchronizing_ = false;  // a request after a failure starts a new Synchronize
  const bool more = TRY(take_found(request.payload));
  synchronizing_ = more;
  if (!more) TRY_VOID(handler_.synchronize_end());
  std::string response;
  if (more) append_varint_field(response, 2, 1);
  return response;
}

// Passes each pod and container of this part to the handler. Returns true if the runtime will send more parts.
Result<bool> NriDispatcher::take_found(std::string_view payload) {
  bool more = false;
  WireReader reader(payload);
  while (true) {
    auto field = reader.next();
    if (!field) return Error{"SynchronizeRequest: " + field.error().message, EINVAL};
    if (!*field) return more;
    if ((*field)->is_bytes(1)) {
      handler_.found(TRY(parse_pod((*field)->bytes)));
    } else if ((*field)->is_bytes(2)) {
      handler_.found(TRY(parse_container((*field)->bytes)));
    } else if ((*field)->is_varint(3)) {
      more = (*field)->value != 0;
    }
  }
}

Result<std::string> NriDispatcher::shutdown(const Request& /*request*/) {
  return std::string();  // ignores this request, which no known runtime sends
}

Result<std::string> NriDispatcher::validate(const Request& request) {
  const std::string reason = handler_.refusal(TRY(parse_validation(request.payload)));
  std::string response;
  if (reason.empty()) return response;
  append_varint_field(response, 1, 1);
  append_bytes_field(response, 2, reason);
  return response;
}

Result<std::string> NriDispatcher::answer(Event method, std::string_view payload) {
  NriRequest request = TRY(parse_nri_request(method, payload));
  // An unknown event is ignored: a newer runtime may send events that this version does not know.
  if (method == Event::kStateChange && !is_change(request.event)) return std::string();
  return handler_.answer(std::move(request));
}

Result<void> check_identity(const PluginIdentity& identity) {
  const auto& [name, index] = identity;
  if (name.empty() || name.find_first_not_of(kOfNames) != std::string::npos)
    return make_error("plugin name `{}`: expected letters, digits and `_.+-`", base::printable(name));
  if (index.size() != 2 || index.find_first_not_of(kDigits) != std::string::npos)
    return make_error("plugin index `{}`: expected two digits", base::printable(index));
  return {};
}

Result<std::unique_ptr<NriSession>> NriSession::open(UniqueFd socket, NriHandler& handler) {
  std::unique_ptr<NriSession> plugin(new NriSession(handler));
  plugin->connection_ =
      TRY(Connection::open(std::move(socket), [dispatcher = &plugin->dispatcher_](const Request& request) {
        return dispatcher->dispatch(request);
      }));
  return plugin;
}

Result<void> NriSession::register_as(const PluginIdentity& identity, std::chrono::milliseconds timeout) {
  TRY_VOID(check_identity(identity));
  nri::pkg::api::v1alpha1::RegisterPluginRequest request;
  request.set_plugin_name(identity.name);
  request.set_plugin_idx(identity.index);
  request.set_nri_version(kNriVersion);
  TRY(connection_->call(kRuntimeService, "RegisterPlugin", request.SerializeAsString(), timeout));
  return {};
}

Result<void> NriSession::evict(const std::string& container_id, const std::string& reason) {
  nri::pkg::api::v1alpha1::UpdateContainersRequest request;
  auto* eviction = request.add_evict();
  eviction->set_container_id(container_id);
  eviction->set_reason(reason);
  TRY(connection_->call(kRuntimeService, "UpdateContainers", request.SerializeAsString(), std::chrono::seconds(5)));
  return {};
}

}  // namespace shim
