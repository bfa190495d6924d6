#include "shim/nri/wire/session.hpp"

#include <algorithm>

#include "fabric/text.hpp"
#include "shim/nri/wire/nri.pb.h"

namespace shim {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::UniqueFd;

// The NRI version whose protocol this is. Runtimes before 0.12.0 skip the field, later ones log it.
constexpr const char* kNriVersion = "v0.12.2";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("_.+-").find(c) != std::string_view::npos;
}

}  // namespace

Result<void> check_identity(const PluginIdentity& identity) {
  const auto& [name, index] = identity;
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character))
    return make_error("plugin name `{}`: letters, digits and `_.+-` are needed", fabric::printable(name));
  if (index.size() != 2 || !std::all_of(index.begin(), index.end(), is_digit))
    return make_error("plugin index `{}`: two digits are needed", fabric::printable(index));
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

Result<void> NriSession::evict(const std::string& container_id, const std::string& reason,
                               std::chrono::milliseconds timeout) {
  nri::pkg::api::v1alpha1::UpdateContainersRequest request;
  auto* eviction = request.add_evict();
  eviction->set_container_id(container_id);
  eviction->set_reason(reason);
  TRY(connection_->call(kRuntimeService, "UpdateContainers", request.SerializeAsString(), timeout));
  return {};
}

}  // namespace shim
