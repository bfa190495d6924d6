// What a runtime says of a training pod and its container, as long as it is on a GPU node.
#pragma once

#include <string>

namespace bench {

// The payload of CreateContainer, or of StopContainer, for the container of this number. devices: its wish, in an
// annotation of the pod; empty: it asks for nothing. The pod is in the node's network namespace.
std::string container_request(unsigned number, const std::string& devices);

}  // namespace bench
