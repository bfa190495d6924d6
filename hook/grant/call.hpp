#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/timing.hpp"
#include "hook/grant/events.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/node_rails.hpp"

namespace hook {

class IpamHelper;
struct Call;

// The kind of call that releases grants.
enum class Releaser { kPoststop, kRecover, kOther };

// A ledger that is open for one call, with the rails of its grants.
struct OpenLedger {
  std::shared_ptr<NodeRails> rails;
  Ledger ledger;
  // Opens the ledger, and makes it if it is missing. Errors: those of Ledger::open().
  static Result<OpenLedger> open(Call& call);
  // Opens the ledger as open() does, and leaves it open in the call: the counters at its end use the directory.
  static Result<const OpenLedger*> keep(Call& call);
  // Opens the ledger if it exists; nullopt: there is none.
  static Result<std::optional<OpenLedger>> open_existing(Call& call);
  // Repairs the ledger after calls that were killed. A failure is only logged as a warning: it must not stop the start
  // of this container.
  void repair(const Log& log) const;
  // Logs the rails' warnings, and one line for each grant released since the last report. Adds the reasons of the
  // releases to the outcome. A container that left its pod's grant gets a line only if `by` is kPoststop. Then removes
  // the views with copies that these grants have left without a user.
  void report(Releaser by, Call& call) const;
};

// The state of one call by an engine or a user.
struct Call {
  const NodeSettings& node;
  Log& log;
  IpamHelper* ipam = nullptr;  // nullptr: no network in the configuration uses a CNI plugin
  Timing timing = {};
  std::string container = {};  // id of the container, once it is known
  std::string bundle = {};     // absolute; empty: unknown
  // For grant_in_spec(), if no createRuntime hook will run: the runtime's state directory, which later shows whether
  // the container lives. nullopt: createRuntime will run, and records the container's init.
  std::optional<RuntimeState> state = {};
  Outcome outcome = {};
  std::vector<std::string> notes = {};    // warnings of find_plan(), each once: facts of the node that cannot be read
  std::optional<OpenLedger> ledger = {};  // set by keep(); open until the end of the call
};

// Returns the recorded rails of a grant, for the log. Takes no lock of the ledger. nullopt: the grant has no rails, or
// the record cannot be read.
std::optional<NetworkRecord> read_rails_of(const std::string& ledger_directory, const std::string& key);

}  // namespace hook
