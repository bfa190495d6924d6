// Books a new grant as pending. At the end of the call the grant becomes valid (Ledger::settle()) or is rolled back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process/root_lock.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/adjustment.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/node_rails.hpp"

namespace hook {

// The differences between the ways to grant HCAs: by createRuntime, rdma-runtime and rdma-nri.
struct Way {
  // Event of the log line: "granted" is counted in the metrics; "booked" is counted later, by createRuntime.
  std::string_view event;
  std::string netns_path = {};  // "/var/run/netns/cni-1", "/proc/PID/ns/net"; empty: no namespace yet, so no rails
  bool hurried = false;         // the runtime waits only two seconds (RailsInput::hurried)
  // True: a grant that rdma-runtime or rdma-nri booked under the token in the container's annotation first moves to the
  // grantee.
  bool binds_token = false;
  bool variables = false;  // the caller sets the container's variables
};

// The turn of one call for a bundle.
struct Turn {
  base::UniqueFd bundle;
  std::optional<LockFile> file;  // the lock file that is used if users other than root can open the bundle
};

// Writes the HCAs of the plan into the ledger, pending until Booking::finish(). For a plan without HCAs it writes
// nothing. views: names of the views that the container mounts, for set_views().
Result<void> book(LockedHcas& locks, const Plan& plan, const Grantee& who, const std::vector<std::string>& views);

// Returns true if an earlier call granted HCAs to this container and no call is changing the grant. Such a container
// may be running. Errors: the ledger's.
Result<bool> was_allocated_before(const Ledger& ledger, const Grantee& who);

// A grant from grant(), which is pending until the caller has written `adjustment` and calls finish(). Without
// finish(), the destructor rolls it back. A container that had its grant before this call keeps it, because it may be
// running. A grant that cannot be rolled back stays pending, and the next call tries again after this process has
// ended. At its end, either way, the call reports the grants that it has released.
class Booking {
 public:
  // The ledger in `of` must be open. `container` and `of` must outlive this object.
  Booking(const ContainerRequest& container, Grantee grantee, const Way& how, Call& of)
      : requesting(container), who(std::move(grantee)), way(how), call(of) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking();
  // Call it before the first change of the ledger: from then on the destructor rolls back. Errors: the ledger's.
  Result<void> begin();
  // Keeps the grant, settles and logs it. Call it last: if this process is killed before it, the next call rolls the
  // changes back.
  Result<void> finish();

  const ContainerRequest& requesting;
  Grantee who;
  const Way way;
  Call& call;
  Plan plan = {};
  Adjustment adjustment = {};  // the changes that the caller must still write
  Turn turn = {};              // the turn of this call, which ends with this object

 private:
  void roll_back() const;
  void note_grant() const;

  std::optional<bool> had_before_;  // whether the container had a grant before this call; nullopt: before begin()
  bool finished_ = false;
};

}  // namespace hook
