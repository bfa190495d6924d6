// NRI's messages as values. Errors of all that parse: EINVAL for bytes that are not such a message; EMSGSIZE for a pod
// and container beyond 4 MiB, which no kernel could start, or with more than 262,144 fields in one message or options
// of mounts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "shim/nri/wire/values.hpp"

namespace shim {

// Where a key comes twice, the last one counts, as in any map of protobuf.
fabric::Result<NriPod> parse_pod(std::string_view bytes);
fabric::Result<NriContainer> parse_container(std::string_view bytes);
fabric::Result<RuntimeInfo> parse_configure(std::string_view payload);
// method: the event, or kStateChange, whose message may say an event that NRI has not.
fabric::Result<NriRequest> parse_nri_request(Event method, std::string_view payload);

fabric::Result<NriValidation> parse_validation(std::string_view payload);
// Of an answer to CreateContainer.
fabric::Result<std::vector<Device>> devices_of_response(std::string_view response);

// The answer to CreateContainer.
std::string create_response(const ContainerAdjustment& adjustment);

}  // namespace shim
