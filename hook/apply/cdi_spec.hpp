// The node's HCAs as a CDI specification (Container Device Interface 0.3.0, which every engine with CDI reads): what
// `podman --device`, `docker --device` and containerd's CRI put into a container's config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/config/config.hpp"
#include "hook/oci/engine.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

inline constexpr const char* kCdiKind = "rdma-init.io/hca";

struct CdiOptions {
  std::string kind = kCdiKind;        // "VENDOR/CLASS"
  std::string hook;                   // absolute path of rdma-hook on the node
  std::optional<Engine> engine = {};  // nullopt: the hook tells it by each container's bundle
};

// One device per HCA that is in a pool and has a device node, by the HCA's name, and "all". A device has its uverbs
// node (umad and issm as config.json says); any of them brings rdma_cm and the hooks of createRuntime and poststop,
// which book the HCAs whose nodes the container has, and refuse what another container holds alone. Device numbers are
// left to the engine, which reads them when it injects: those of rdma_cm change with every boot.
// warnings: HCAs that are left out. Errors: a kind that CDI does not allow, no HCA to offer. Pure.
fabric::Result<Json> cdi_spec(const fabric::Inventory& inventory, const Config& config, const CdiOptions& options,
                              std::vector<std::string>& warnings);

// CDI 0.3.0's rules for the name of a kind: a DNS-like vendor, a slash, a class.
fabric::Result<void> check_cdi_kind(std::string_view kind);

}  // namespace hook
