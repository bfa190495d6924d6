#pragma once

#include <memory>
#include <optional>
#include <string>

#include "hook/base/log.hpp"
#include "hook/base/result.hpp"
#include "hook/base/timing.hpp"
#include "hook/grant/events.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/undo.hpp"

namespace hook {

class IpamHelper;

// One request of an engine or a user, on its way.
struct Call {
  const NodeSettings& node;
  Log& log;
  IpamHelper* ipam = nullptr;  // nullptr: no network of the configuration has a CNI plugin
  Timing timing = {};
  std::string container = {};  // its id, once it is known
  std::string bundle = {};     // of grant_in_spec(): absolute; empty: not known
  // Of grant_in_spec(): where the container's runtime will tell that it lives; nullopt: createRuntime will.
  std::optional<RuntimeState> state = {};
  Outcome outcome = {};
};

// What the call does to grants that are on the ledger.
enum class Releaser { kPoststop, kRecover, kOther };

// A ledger that is open for one call, with what grants have on the node.
struct OpenLedger {
  std::shared_ptr<NodeRails> rails;
  Ledger ledger;
  // Errors: about the ledger.
  static Result<OpenLedger> open(Call& call);
  // nullopt: there is no ledger, and none is made.
  static Result<std::optional<OpenLedger>> open_existing(Call& call);
  // Repairs what killed calls left half-way. A failure is a warning, and does not fail this container.
  void repair(const Log& log) const;
  // Writes a line into the log for each grant that was released since the last call, with the rails' warnings, and
  // notes in the outcome why each was returned. That a container has left its pod's grant is reported for a poststop.
  void report(Releaser by, Call& call) const;
};

// Returns the rails that are recorded of a grant, without the locks of a ledger: for the log. nullopt: none, or not to
// be read.
std::optional<NetworkRecord> read_rails_of(const std::string& ledger_directory, const std::string& key);

}  // namespace hook
