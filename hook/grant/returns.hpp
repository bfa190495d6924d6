// Notes what one call returns, at its own poststop or because no user is left: the ledger undoes what a grant has
// beyond it (GrantEffects) whenever it returns one, under the grant's lock, so each return is seen here, and by one
// call only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/base/timing.hpp"
#include "hook/grant/events.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/return_rails.hpp"

namespace hook {

class Returns : public GrantEffects {
 public:
  enum class Caller { kRecover, kOther };
  // ipam: as NodeRails has it. root: prefix of the node's /proc.
  Returns(const std::string& ledger_directory, IpamHelper* ipam, Caller caller = Caller::kOther, std::string root = {})
      : directory_(ledger_directory), root_(std::move(root)), rails_(ledger_directory, ipam), caller_(caller) {}

  // Takes the rails back, fails while an HCA of mode exclusive that goes is left open (check_closed()), and notes the
  // grant if that leaves it nothing. Not noted is what a living process undoes of
  // its own start: the start fails, and no grant was counted. Errors: NodeRails', about the network; check_closed()'s.
  fabric::Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                   const StoredGrant* grant) const override;

  void wait_until(Deadline deadline) const override { rails_.wait_until(deadline); }

  // From here on returns are on the way of a start: descriptors are looked for only where a return has failed before.
  void begin_start() { is_start_ = true; }

  // Between the two calls returns are of the container's own poststop, whose steps are timed.
  void begin_poststop(std::string_view container, Timing& timing);
  void end_poststop();

  const NodeRails& rails() const { return rails_; }
  // Writes what was noted since the last call into the log, a line each, with the rails' warnings, and into the
  // outcome.
  void report(const Log& log, Outcome& outcome) const;

 private:
  ReturnReason reason_of(const StoredGrant& grant) const;
  fabric::Result<void> check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const;

  std::string directory_;
  std::string root_;
  NodeRails rails_;
  Caller caller_;
  std::string container_;  // whose poststop this is
  Timing* timing_ = nullptr;
  bool is_start_ = false;
  mutable std::vector<std::string> warnings_;
  struct Note {
    Returned returned;
    const Timing* timing;
  };
  mutable std::vector<Note> notes_;
};

// What is recorded of a grant's rails, without the locks of a ledger: for the log. nullopt: none, or not to be read.
std::optional<NetworkRecord> read_rails_of(const std::string& ledger_directory, const std::string& key);

}  // namespace hook
