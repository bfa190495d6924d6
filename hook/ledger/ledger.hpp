// Who holds what: one directory of small files, so that one more container costs the same whether there are none or
// a thousand. Crash-safe: a file is written beside and renamed; what a killed process left is found by the next call.
//
//   DIR/lock                          one byte per grant key is locked while that grant changes
//   DIR/place -> PLACE                the namespaces in which processes are known by what is noted here
//   DIR/hca/DEVICE/lock               flock: held while that HCA is decided about, never longer
//   DIR/hca/DEVICE/holders/KEY@UNITS  one holder; empty
//   DIR/hca/DEVICE/exclusive -> KEY   the one holder, if exclusive
//   DIR/grants/KEY.json               whose it is, since when, which HCAs, which containers; with a checksum
//   DIR/pending/                      what is under way, with pid and start time of who works on it: steps.hpp
//   DIR/ids/DIGEST/KEY -> KEY        a grant that has to do with this container or pod: index.hpp
//   DIR/views/SET/                    what containers with these HCAs see in /sys/class: views.hpp
//   DIR/network/, DIR/addresses/      rails and their addresses: hook/rails
//   DIR/runtime/                      which runtime made which container: runtime_records.hpp
//
// DIR is /run/rdma-hook, 0700, root's; anything else there is refused, symlinks are not followed. The invariant that
// makes it hold is at the top of ledger.cpp. A child made by fork() opens its own ledger, and as long as it lives it
// keeps locks that its parent held.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/base/timing.hpp"
#include "hook/ledger/book.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

inline constexpr const char* kLedgerPath = "/run/rdma-hook";
inline constexpr int kHcaLockTimeoutMs = 10000;

// What recover() gives all that is stuck together.
inline constexpr std::chrono::seconds kRecoverPatience{20};

// What was found to have no user left, and was returned.
struct Recovered {
  std::vector<std::string> returned;  // labels of the grants
  std::vector<std::string> warnings;  // what stays that holds nothing, or that cannot be seen to have ended
};

class LedgerFiles;

class Ledger {
 public:
  // Makes the directories if they are missing. Errors: not root's, writable by others, a symlink, a read-only file
  // system, this process is in other namespaces than the ledger is of; each names the path and the remedy.
  // effects: what grants have beyond the ledger; nullptr: nothing. container: for whose sake, as who waits for a lock
  // is told.
  static Result<Ledger> open(const std::string& path = kLedgerPath,
                             std::shared_ptr<const GrantEffects> effects = nullptr, std::string container = {});

  // Locks these HCAs in the order of what they are booked as (so that two calls cannot wait for each other), at most
  // timeout_ms each. Both names are checked: [A-Za-z0-9_.-]{1,63}. Errors: as lock_hca().
  Result<LockedHcas> lock(const std::vector<std::string>& hcas, int timeout_ms = kHcaLockTimeoutMs,
                          const HcaDevices& devices = {}) const;

  // One grant; nullopt: there is no such grant. A file that does not parse is an error that names it.
  Result<std::optional<Grant>> find(std::string_view key) const;
  // What cannot be read of several goes into `unread`, and the others are there; without `unread` it is an error.
  using Unread = std::vector<Error>;
  // Calls use(grant) with each grant of list(), one at a time, of a ledger that may be read-only: nothing is made or
  // written. False: there is no ledger. Errors: as list(), and use's, which ends it.
  static Result<bool> for_each_at(const std::string& path, const std::function<Result<void>(const Grant&)>& use,
                                  Unread* unread = nullptr);
  // The same as the records say: it looks at no process, no namespace and not at the ledger's place, so it works in any
  // PID namespace. No owner is judged gone, and `vanished` is false.
  static Result<bool> for_each_recorded_at(const std::string& path,
                                           const std::function<Result<void>(const Grant&)>& use,
                                           Unread* unread = nullptr);
  // Those with a user that is this container, or of the pod with this id. Costs nothing for others' grants.
  Result<std::vector<Grant>> find_by_id(std::string_view id, Unread* unread = nullptr) const;
  // All of them, vanished ones too. Costs in proportion to their number: for people and conflicts.
  Result<std::vector<Grant>> list(Unread* unread = nullptr) const;

  // The steps that were booked or bound through this ledger for this grant are done. Until then they are undone if this
  // process dies. No such steps, or no such grant: success, nothing to do.
  Result<void> settle(std::string_view key) const;

  // A user leaves. A container's or token's grant is returned with it; a namespace's stays until that is gone, without
  // what a user brought whose steps were not settled, and with the pod as its user if the user said of which it is. No
  // grant, or no such user: success. A user stays, and passed_over is set, while another process works on its start, or
  // while its process or its runtime's state is not proven gone, unless that process is this one or above it: a
  // poststop may be of another container of that id and bundle. Errors: EBUSY, a process is still in the cgroup of a
  // user whose steps were settled. Where another step fails, the grant says that the user has ended, so that it is held
  // only until it can be returned: by the next call that needs it, or by recover().
  Result<void> leave(const Owner& owner, std::string_view user_key, bool* passed_over = nullptr) const;
  // Notes of which pod this container is, in grants that do not say so; none: success.
  Result<void> note_pod(std::string_view id, const std::string& pod) const;
  // Returns the grant, whichever containers use it.
  Result<void> give_back(std::string_view key) const;

  // A token's grant becomes the container's (or its pod's; a token that is a user of the pod's grant becomes that
  // container), pending until settle(); nullopt: there is no such token (already bound, returned, or made up). The
  // token's view becomes the container's. Takes the locks of the token's HCAs. Errors:
  // it was booked for a container of another id or, where both are known, of another bundle; nothing is bound then.
  Result<std::optional<Grant>> bind(std::string_view token, const Owner& owner, const GrantUser& user) const;

  // What processes killed half-way left behind: looks at pending/ only, which is empty unless something is under way.
  // Best effort, for it stands before every hook's own work: never waits; what another process has locked or what
  // cannot be repaired is left for later. Errors: pending/ cannot be listed.
  Result<void> repair_pending() const;
  // Returns everything that is not held any more: vanished grants, holders without a grant, views that no user names;
  // and puts the indexes right. Each grant is read once, and locked only where something does not agree. First all of
  // it without waiting, then what is stuck, until the deadline. What is stuck then, or cannot be read, keeps nothing
  // else from being returned; the error names it, all of it.
  Result<Recovered> recover(Deadline deadline = from_now(kRecoverPatience)) const;
  // For what carries a key beyond the ledger's files. If no grant of this key is held, once it is refreshed, and no
  // living process works on one, undoes its effects, calls `rest` with the key's lock held, and returns true. `rest`
  // must not ask for a lock of the ledger; nor may the caller hold one. Errors: the lock is not to be had until then,
  // something cannot be looked at or undone.
  Result<bool> release(const std::string& key, Deadline deadline, const std::function<Result<void>()>& rest) const;

  // What was returned or left through this ledger since the last call, each once, in this order.
  std::vector<Released> take_released() const;

  // view_name() of these entries, in view_directory(). One that is there serves if it is as it was made; else it is
  // replaced, with a warning, and who has it mounted keeps it. After book() with a user that names it: recover()
  // removes the others. The caller holds no lock.
  Result<std::vector<std::string>> make_view(const std::vector<ViewEntry>& entries) const;
  std::string view_directory() const;

 private:
  explicit Ledger(std::shared_ptr<const LedgerFiles> files);
  std::shared_ptr<const LedgerFiles> files_;
};

}  // namespace hook
