// The kubelet's requests and our answers, as messages of the device plugin API. Pure.
#pragma once

#include "shim/device_plugin/resources.hpp"
#include "shim/device_plugin/wire/device_plugin.pb.h"
#include "shim/result.hpp"

namespace shim {

void list_devices(const Resource& resource, v1beta1::ListAndWatchResponse& response);

// For each container what preferred_ids() says. Errors: as that; a negative size.
Result<void> prefer_devices(const Resource& resource, const v1beta1::PreferredAllocationRequest& request,
                            v1beta1::PreferredAllocationResponse& response);

// hcas: those of each container, as far as the first that is an error. Errors: as hcas_of().
Result<void> requested_hcas(const Resource& resource, const v1beta1::AllocateRequest& request,
                            std::vector<std::vector<const CountedHca*>>& hcas);
// For each container the nodes of its HCAs, or by_cdi their names as CDI devices, and nothing else: the rest is given
// by the hook, rdma-runtime or rdma-nri.
void allocate_devices(const std::vector<std::vector<const CountedHca*>>& hcas, const ByCdi& by_cdi,
                      v1beta1::AllocateResponse& response);

}  // namespace shim
