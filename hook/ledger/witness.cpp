#include "hook/ledger/witness.hpp"

namespace hook {
namespace {

using fabric::Result;

class NodeWitness : public Witness {
 public:
  Result<Presence> process(const ProcessIdentity& process) const override { return look_at(process); }
  bool is_above_me(const ProcessIdentity& process) const override { return hook::is_above_me(process); }
  Result<Presence> container(const RuntimeState& state, const std::string& id,
                             const std::string& bundle) const override {
    return look_at(state, id, bundle);
  }
  Result<Presence> cgroup(const CgroupIdentity& cgroup) const override { return look_at(cgroup); }
  Result<Presence> netns(const NetnsIdentity& netns) const override { return look_at(netns); }
};

}  // namespace

const Witness& node_witness() {
  static const NodeWitness witness;
  return witness;
}

}  // namespace hook
