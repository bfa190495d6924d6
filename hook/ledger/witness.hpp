#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/base/presence.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/ledger/cgroup_identity.hpp"
#include "hook/ledger/netns_identity.hpp"
#include "hook/ledger/runtime_state.hpp"

namespace hook {

// Looks whether what a grant names is there. Errors: it cannot be looked at, which proves nothing.
class Witness {
 public:
  Witness() = default;
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  virtual ~Witness() = default;
  virtual fabric::Result<Presence> process(const ProcessIdentity& process) const = 0;
  // Of this process, or of one above it.
  virtual bool is_above_me(const ProcessIdentity& process) const = 0;
  virtual fabric::Result<Presence> container(const RuntimeState& state, const std::string& id,
                                             const std::string& bundle) const = 0;
  virtual fabric::Result<Presence> cgroup(const CgroupIdentity& cgroup) const = 0;
  virtual fabric::Result<Presence> netns(const NetnsIdentity& netns) const = 0;
};

// Looks at the node itself.
const Witness& node_witness();

}  // namespace hook
