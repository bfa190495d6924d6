// Makes a CDI specification of the node's HCAs (Container Device Interface 0.3.0, which every engine with CDI reads),
// for `podman --device`, `docker --device` and containerd's CRI.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/oci/engine.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

inline constexpr const char* kCdiKind = "rdma-init.io/hca";
inline constexpr const char* kClaimKind = "rdma-init.io/claim";  // kind of the CDI devices of claims

struct CdiOptions {
  std::string kind = kCdiKind;        // "VENDOR/CLASS"
  std::string hook;                   // absolute path of rdma-hook on the node; empty: the specification has no hooks
  std::optional<Engine> engine = {};  // nullopt: the hook detects the engine (hook/oci/caller.hpp)
};

// Returns a specification with one CDI device for each HCA that is in a pool and has a uverbs node, by the HCA's name,
// and a CDI device "all". A CDI device adds the HCA's uverbs node, and its umad and issm nodes if config.json enables
// them, and the site values ("env") of its pool or network. Each CDI device also adds rdma_cm, if enabled, and the
// hooks createRuntime and poststop. The hook books the HCAs of the container's device nodes, and refuses HCAs that
// another container has exclusively. The specification has no device numbers, because the number of rdma_cm can change
// at each boot. The engine reads the numbers when it adds the nodes. The second value has a warning for each HCA that
// is skipped. Errors: a kind that CDI does not allow; the node has no HCA for a CDI device; the HCAs of the node could
// not be read. Pure.
base::Result<std::pair<Json, std::vector<std::string>>> cdi_spec(const fabric::Inventory& inventory,
                                                                 const Config& config, const CdiOptions& options);

// A CDI device of a specification.
struct CdiDevice {
  std::string name;  // begins with a letter, and then has [A-Za-z0-9_.:-]
  std::vector<PlannedNode> nodes;
};
// Returns a specification with these CDI devices. common: nodes and variables that a container gets once, whatever the
// number of its CDI devices; with options.hook also the hooks. Pure.
Json cdi_spec_of(const std::vector<CdiDevice>& devices, const Plan& common, const CdiOptions& options);

// Checks a kind by the rules of CDI 0.3.0: a DNS-like vendor, a slash, a class.
base::Result<void> check_cdi_kind(std::string_view kind);

}  // namespace hook
