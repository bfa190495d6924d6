// What rdma-init is asked to decide, and what it decided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/selectors.hpp"
#include "init/candidates.hpp"
#include "init/exports.hpp"
#include "init/kept.hpp"
#include "init/nccl_rules.hpp"
#include "init/settings.hpp"

namespace init {

// What the operator asked for.
struct Policy {
  std::optional<fabric::SelectorList> hcas;  // --hca
  GidFilter gids;                            // --cidr, --family, --no-link-local
  std::vector<std::string> exports = {"nccl", "ucx", "nvshmem"};
  std::optional<nccl::Version> nccl_version;  // --nccl-version
  std::size_t require = 0;                    // --require: HCAs with a usable port
  bool strict = false;
  bool override_wrong = false;  // --override
};

enum class Status { kOk, kOkWarn, kNone };

struct PortReport {
  std::string device;
  unsigned port = 1;
  bool used = false;
  std::optional<unsigned> gid_index;
  std::optional<fabric::Address> gid;
  double rate_gbps = 0;
  std::string link_layer;
  std::string reason;  // one line: why it is used, or what keeps it out
  std::string remedy;  // empty when there is nothing to do
};

struct Decision {
  Status status = Status::kNone;
  Variables env;  // to be exported, in the order decided
  KeptValues kept;
  std::vector<PortReport> ports;      // every port once, in inventory order
  std::vector<std::string> warnings;  // status kOkWarn has some, kOk and kNone have none
  std::vector<std::string> asides;    // status kNone: what would be warnings, for people only
  std::vector<std::string> remarks;   // worth a line to people, no fault
  bool efa = false;                   // status none because the fabric is EFA
  std::string summary;                // one line: what was chosen, or why nothing
  std::string remedy;                 // for status none: what would help
  std::vector<std::string> notes;     // reasons of exports and replaced values, one line each
  std::size_t usable_hcas = 0;        // what --require counts
  std::string refusal_remedy;
  std::optional<std::string> refusal;  // --require unmet or --strict violated: leave with 78
  // Decide again on an inventory whose GID tables were read to the end; then this says that part of one cannot be.
  bool needs_full = false;

  // Whether a port is used for which the test holds.
  bool uses(const auto& test) const {
    return std::ranges::any_of(ports, [&](const PortReport& port) { return port.used && test(port); });
  }
  bool uses(const Candidate& candidate) const {
    return uses([&](const PortReport& port) {
      return port.device == candidate.hca->name && port.port == candidate.port->number;
    });
  }
};

inline std::string_view status_name(Status status) {
  return status == Status::kOk ? "ok" : status == Status::kOkWarn ? "ok_warn" : "none";
}

// The whole decision of rdma-init: inventory and settings in, variables and reasons out. Pure.
Decision decide(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy);

}  // namespace init
