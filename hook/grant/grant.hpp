// One grant from a container's request to its devices, the same for every way: read, decide under the locks, book,
// apply, settle; undone when a step fails.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/base/process/process_identity.hpp"
#include "hook/base/timing.hpp"
#include "hook/grant/asking.hpp"
#include "hook/grant/events.hpp"
#include "hook/grant/node.hpp"
#include "hook/grant/returns.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

class IpamHelper;

// One request of an engine, on its way.
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

// A ledger that is open for one call, and what is returned to the node on the way.
struct OpenLedger {
  std::shared_ptr<Returns> returns;
  Ledger ledger;
  // Errors: about the ledger.
  static fabric::Result<OpenLedger> open(Call& call, Returns::Caller caller = Returns::Caller::kOther);
  // Puts right what killed calls left half-way. A failure is a line in the log, and does not fail this container.
  void repair(const Log& log) const;
};

// The owner and the user to book for.
struct Grantee {
  Owner owner;
  GrantUser user;
  std::string token = {};  // the annotation by which createRuntime finds what was booked; empty: it need not be found
};
// For a container that does not exist yet: with a new token. requester: the process that stands for the token until
// createRuntime binds it; nullopt: only the engine's word does. id: the container's.
fabric::Result<Grantee> new_grantee(const ContainerSpec& spec, std::string id,
                                    const std::optional<ProcessIdentity>& requester);

struct NetworkTarget {
  std::string netns_path = {};  // "/var/run/netns/cni-1", "/proc/PID/ns/net"; empty: there is none yet, so no rails
  bool hurried = false;         // as RailsInput::hurried
};

// What differs between the ways.
struct Way {
  // Of the log's line: "granted", which is counted; "booked", which createRuntime will count when the container comes.
  std::string_view event;
  NetworkTarget network = {};
  // A token of the container's annotation becomes the grantee's grant first.
  bool binds_token = false;
  bool variables = false;  // apply sets the container's
  // Puts the plan, with its rails given and its view made, where the container finds it; also a plan of nothing.
  std::function<fabric::Result<void>(const Plan& plan)> apply;
};

// asking.request: there is one. Errors: as lock_holdings(), decide(), give_network(), the ledger's, add_own_hcas()'s,
// apply's.
fabric::Result<void> grant(const OpenLedger& open, const Asking& asking, const Grantee& who, const Way& way,
                           Call& call);

// Puts the edited config.json where the runtime reads it.
using Publish = std::function<fabric::Result<void>(const Plan& plan, Json& config)>;

// grant() into asking.document (edit_spec()), which is then published. What is booked is the container's with
// call.state, and free again when the requester, which becomes its runtime, and the container are gone. Without, it is
// the requester's until createRuntime binds it, and free again when the requester is gone and nothing was bound.
fabric::Result<void> grant_in_spec(Asking& asking, const ProcessIdentity& requester, Call& call,
                                   const Publish& publish);

}  // namespace hook
