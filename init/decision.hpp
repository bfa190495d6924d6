// Input and result of a decision.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/selectors.hpp"
#include "init/candidates.hpp"
#include "init/check.hpp"
#include "init/exports.hpp"
#include "init/kept.hpp"
#include "init/nccl_rules.hpp"
#include "init/rail_place.hpp"
#include "init/settings.hpp"

namespace init {

// The options of the administrator.
struct Policy {
  std::optional<fabric::SelectorList> hcas;  // --hca
  GidFilter gids;                            // --cidr, --family, --no-link-local
  std::vector<std::string> exports = {"nccl", "ucx", "nvshmem"};
  std::optional<nccl::Version> nccl_version;  // value of the option --nccl-version
  std::size_t require = 0;                    // --require: HCAs with a usable port
  std::size_t require_used = 0;               // --require-used: HCAs with a chosen port
  bool strict = false;
  bool override_wrong = false;  // the option --override is set
  Rails rails = {};             // the rails that the node states; empty: none
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
  std::string_view cause;  // stable name of the reason for programs; empty: the port is used
  std::string reason;      // one line: why the port is used, or why not
  std::string remedy;      // empty if there is none
  std::optional<RailPlace> rail = {};
};

struct Decision {
  Status status = Status::kNone;
  Variables env;                   // variables to export, in the order of the decision
  std::string mark;                // exports_mark(), without the values of a site's policy; empty: there are no exports
  Settings kept;                   // values of the user that stay, with their problems
  std::vector<PortReport> ports;   // every port once, in inventory order
  std::vector<Check> warnings;     // status kOkWarn has at least one, kOk and kNone have none
  std::vector<Check> asides;       // status kNone: warnings for the log only
  std::vector<Check> remarks;      // information for the log, not a fault
  bool efa = false;                // status kNone because the fabric is EFA
  std::string summary;             // one line: the chosen ports, or why there are none
  std::string remedy;              // remedy for status kNone
  std::vector<std::string> notes;  // reasons for exports and replaced values, one line each
  std::optional<nccl::Version> nccl_version = {};  // the version of --nccl-version or $NCCL_VERSION
  std::size_t usable_hcas = 0;                     // the number that --require compares
  std::size_t unused_rails = 0;  // HCAs that equal a used one and cannot be used (find_unused_rails())
  std::size_t equal_rails = 0;   // the HCAs of unused_rails, and the used HCAs that they equal
  std::string refusal_remedy;
  std::optional<std::string> refusal;  // --require is not met or --strict is violated: exit with 78
  // The caller must decide again on an inventory with GID tables without skipped slots (GidTables::kFromFirst).
  bool needs_skipped = false;
  // The caller must decide again on an inventory with complete GID tables. If needs_full is still true after that, part
  // of a table cannot be read.
  bool needs_full = false;
  // The caller must decide again on an inventory with the models of the HCAs (fabric::read_models()).
  bool needs_models = false;

  // Returns true if a used port passes the test.
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

// Makes the complete decision of rdma-init: variables and reasons, from inventory and settings. Pure.
Decision decide(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy);

}  // namespace init
