// CNI_ARGS of an IPAM plugin's call: whose addresses these are, in the words in which containerd (toCNILabels() of its
// CRI plugin's sandbox_run.go) and CRI-O (buildCNIRuntimeConf() of cri-o/ocicni) tell their own CNI plugins. Plugins
// for whole clusters refuse without. Pure.
#pragma once

#include <string>
#include <string_view>

#include "hook/oci/container_spec.hpp"

namespace hook {

// "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=d". What is not known,
// or has a character that no name, id or uid of Kubernetes has, is left out; empty: nothing is left.
std::string cni_args(const PodIdentity& pod);
// Whether cni_args() can have made this, which is not empty.
bool is_cni_args(std::string_view text);

}  // namespace hook
