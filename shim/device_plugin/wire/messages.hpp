// Converts between the resources and the messages of the device plugin API. Pure.
#pragma once

#include "base/result.hpp"
#include "shim/device_plugin/resources.hpp"
#include "shim/device_plugin/wire/device_plugin.pb.h"

namespace shim {

void list_devices(const Resource& resource, v1beta1::ListAndWatchResponse& response);

// Answers the request of each container with preferred_ids(). Errors: those of preferred_ids(); a negative number of
// devices.
Result<void> prefer_devices(const Resource& resource, const v1beta1::PreferredAllocationRequest& request,
                            v1beta1::PreferredAllocationResponse& response);

// Finds the HCAs that each container requests. hcas: receives one entry per container; after an error, only the entries
// of the containers before it. Errors: those of hcas_of().
Result<void> requested_hcas(const Resource& resource, const v1beta1::AllocateRequest& request,
                            std::vector<std::vector<const CountedHca*>>& hcas);
// Adds the nodes of each container's HCAs, or their CDI device names if by_cdi returns true. Leaves limits, variables,
// rails and the view to the hook, rdma-runtime or rdma-nri.
void allocate_devices(const std::vector<std::vector<const CountedHca*>>& hcas, const ByCdi& by_cdi,
                      v1beta1::AllocateResponse& response);

}  // namespace shim
