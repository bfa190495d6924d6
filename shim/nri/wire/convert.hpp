// Between protobuf messages and values. For this directory only: nothing outside of it includes protobuf.
#pragma once

#include "shim/nri/wire/nri.pb.h"
#include "shim/nri/wire/values.hpp"

namespace shim {

namespace wire = nri::pkg::api::v1alpha1;

// They take the strings out of the message. Of keys that come twice the last counts, as in any map of protobuf.
NriPod take_pod(wire::PodSandbox& pod);
NriContainer take_container(wire::Container& container);
RuntimeInfo take_runtime_info(wire::ConfigureRequest& request);
ContainerAdjustment take_adjustment(wire::ContainerAdjustment& adjustment);

wire::PodSandbox to_wire(const NriPod& pod);
wire::Container to_wire(const NriContainer& container);
wire::CreateContainerResponse to_wire(const ContainerAdjustment& adjustment);

}  // namespace shim
