// The Plugin service of NRI: from a method's name and the bytes of its request to a call of the handler and the bytes
// of the response. Knows no socket.
#pragma once

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "shim/nri/wire/handler.hpp"
#include "shim/ttrpc/rpc.hpp"

namespace shim {

inline constexpr std::string_view kPluginService = "nri.pkg.api.v1alpha1.Plugin";
inline constexpr std::string_view kRuntimeService = "nri.pkg.api.v1alpha1.Runtime";

class NriDispatcher {
 public:
  // The handler must outlive it.
  explicit NriDispatcher(NriHandler& handler) : handler_(handler) {}

  // Errors: those of the handler; ENOSYS for a service or method that is not here (NRI 0.12 then uses StateChange);
  // EINVAL for bytes that are not such a message; EAGAIN before Configure; EMSGSIZE for a pod and container
  // beyond 4 MiB, which no kernel could start.
  fabric::Result<std::string> dispatch(const Request& request);

 private:
  struct Method;
  static const Method kMethods[];

  fabric::Result<std::string> configure(const Request& request);
  fabric::Result<std::string> synchronize(const Request& request);
  fabric::Result<std::string> shutdown(const Request& request);
  fabric::Result<std::string> validate(const Request& request);
  fabric::Result<bool> take_found(std::string_view payload);
  fabric::Result<std::string> answer(Event method, std::string_view payload);

  NriHandler& handler_;
  bool configured_ = false;
  bool synchronizing_ = false;  // between the parts
};

}  // namespace shim
