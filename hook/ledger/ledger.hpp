// The record of grants: one directory of small files, so that a start costs the same on a node without containers and
// on a node with a thousand. A crash leaves no half-written file, because each file is written under another name and
// then renamed. The next call repairs the leftovers of a killed process. A boot empties the directory.
//
// DIR is /run/rdma-hook, mode 0700, owned by root. A directory that other users own or can access is refused, and
// symlinks are not followed. All programs of the node write it. Its entries:
//
//   DIR/lock
//       One byte for each key of a grant and each name of a view. Who changes that grant or view locks the byte
//       (F_OFD_SETLK, locks.hpp). Empty.
//   DIR/place -> PLACE
//       The PID and time namespace of the processes in the records. The first record makes it; a program in other
//       namespaces does not write (check_place()).
//   DIR/hca/DEVICE/lock
//       flock(2), held while a call decides about that HCA (locks.hpp). Its line names the process, for messages only.
//       The directory of an HCA stays until the next boot: without one, the HCA was never held.
//   DIR/hca/DEVICE/holders/KEY@UNITS
//       A grant that holds the HCA. Empty. Needs the lock of KEY, and a new one also that of DEVICE (index.hpp).
//   DIR/hca/DEVICE/exclusive -> KEY
//       The grant that holds the HCA exclusively, "shared" or "none". Locks as for holders (index.hpp).
//   DIR/grants/KEY.json
//       A grant: owner, time, HCAs and users, as JSON with a checksum, about 1 kB for an HCA and at most 1 MiB
//       (record.hpp). Needs the lock of KEY. Ends with the owner.
//   DIR/pending/
//       Changes that are under way, with pid and start time of their process (store.hpp). The process that makes a
//       change removes its entry; if it was killed, the next call does.
//   DIR/ids/DIGEST/KEY -> KEY
//       A grant with a user of this container or pod id, or that uses the claim of this key (index.hpp). Needs the lock
//       of KEY.
//   DIR/claim-UID.lock
//       Exists while a call prepares or ends the claim with this UID (hook/claim/claims.hpp). Empty.
//   DIR/lent/SET/KEY -> KEY
//       A grant with a user of this view, which has copies (index.hpp). Needs the lock of KEY.
//   DIR/views/SET/
//       The view of /sys/class of containers with these HCAs (views.hpp). Needs the lock of SET. recover() removes it
//       after its last user.
//   DIR/checked/SET -> NUMBERS
//       Inode numbers and times of the view SET when it was found whole (views.cpp). Needs the lock of SET. Ends with
//       the view; recover() removes it if another program has removed the view.
//   DIR/links
//       The links of /sys/class/infiniband, with inode numbers that prove them (fabric/rdma_sysfs.hpp). Only on a node
//       with many HCAs. A call that has read them replaces it.
//   DIR/copies/CONTENT
//       A file of the node that views lend (copies.hpp). Needs the lock of "copies". Ends with its last link in a view.
//   DIR/network/KEY.json
//       The rails of a grant, and the state of the netdevs before them, as JSON (hook/rails/record/). Needs the lock of
//       KEY. Written before the first change of a netdev, removed after the last netdev is restored.
//   DIR/addresses/NETWORK/PLACE/ADDRESS -> KEY
//       An address in use (hook/rails/address/pool.hpp). Needs flock(2) of the directory PLACE. Ends with the grant.
//   DIR/runtime/
//       The runtime that made each container, a link for each (runtime_records.hpp). rdma-runtime makes them, also
//       without a grant. Who replaces or sweeps them has flock(2) of the directory ending.
//   DIR/refusals
//       The last 64 refusals, as JSON, at most 64 KiB, with flock(2) of refusals.lock (refusals.hpp).
//   DIR/metrics
//       At most 512 counters of 128 bytes, changed in place with flock(2) of the file
//       (hook/admin/metrics/counters.hpp).
//   DIR/state/PROGRAM.PID
//       What a long-running program reports to --probe. It holds a lock on the file as long as it lives
//       (base/process/daemon_state.hpp).
//
// The top of ledger.cpp explains the order of writes. A child made by fork() must open its own ledger: it inherits the
// parent's descriptors, so a lock of the parent stays taken until the child has ended too.
//
// Why not one file: each start would read and write the records of all containers, and would wait for a start that
// waits for a device. SQLite adds 1.2 MB to each static program, and its locks end when the process closes any
// descriptor of the file (fcntl(2)). LMDB adds 70 kB, but a killed reader keeps old pages, and a full file fails a
// start. A daemon with the state in its memory must run before each container can start or end.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "hook/ledger/book.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/ledger/path.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

inline constexpr int kHcaLockTimeoutMs = 10000;

// Time that recover() waits for all stuck grants together.
inline constexpr std::chrono::seconds kRecoverPatience{20};

// The result of recover().
struct Recovered {
  std::vector<std::string> released;  // labels of the stale grants that were released
  std::vector<std::string> warnings;  // views that could not be removed, and users that cannot be proven gone
};

class LedgerFiles;
struct LedgerDirectory;

class Ledger {
 public:
  // Opens the ledger, and makes its directories if they are missing.
  // effects: ends the changes that grants make outside the ledger, such as moved netdevs; nullptr: there are none.
  // container: id of the container of this call. A process that waits for a lock of this ledger prints the id.
  // Errors: a directory belongs to another user, is open to other users, or is a symlink; the file system is read-only;
  // a record was written in other PID or time namespaces than those of this process (check_place()). The message names
  // the path.
  static Result<Ledger> open(const std::string& path = kLedgerPath,
                             std::shared_ptr<const GrantEffects> effects = nullptr, std::string container = {});

  // Locks these HCAs in the order of their devices, so that two calls cannot wait for each other. hcas: names,
  // [A-Za-z0-9_.-]{1,63}; the devices have the same form. timeout_ms: longest wait for all of them. Errors: those of
  // lock_hca(). names_process: the message of EAGAIN names the process that holds the lock, which may take seconds.
  Result<LockedHcas> lock(const std::vector<std::string>& hcas, int timeout_ms = kHcaLockTimeoutMs,
                          const HcaDevices& devices = {}, bool names_process = true) const;

  // Returns what the index lists for one HCA, for the ranking of candidates. Reads no grant and takes no lock: stale
  // grants count, and the change of another process may be missing. So the result proves nothing. hca: its device, or
  // its name if it has none. key: the requesting owner, whose own entries do not count. most: number of units at which
  // counting stops. If the index cannot be read, the HCA counts as held exclusively.
  Holding glance(const std::string& hca, std::string_view key, unsigned most) const;

  // Notes that this call has made the key of random bits (new_token()), so that the ledger searches for no grant of it
  // before it is booked.
  void expect_new(std::string_view key) const;

  // Returns the grant of this key; nullopt: there is none. Errors: its file cannot be read or parsed; the error names
  // it.
  Result<std::optional<Grant>> find(std::string_view key) const;
  // Collects the errors of grants that cannot be read. If a function gets `unread`, it continues with the next grant.
  // Without `unread`, the first error ends the function.
  using Unread = std::vector<Error>;
  // Calls use(grant) for each grant of list(), one at a time. Makes and writes no file, so the ledger may be read-only.
  // Returns false if there is no ledger. Errors: those of list(); an error of use() ends the call.
  static Result<bool> for_each_at(const std::string& path, const std::function<Result<void>(const Grant&)>& use,
                                  Unread* unread = nullptr);
  // Like for_each_at(), but from the records only: reads no process, no namespace and not DIR/place, so it works in any
  // PID namespace. `stale` is always false.
  static Result<bool> for_each_recorded_at(const std::string& path,
                                           const std::function<Result<void>(const Grant&)>& use,
                                           Unread* unread = nullptr);
  // The HCAs that were held since the boot.
  struct OnceHeld {
    // Grants hold them exclusively by the index: as the grants record them. If the link or the grant cannot be read, an
    // entry has only the device: nothing proves then that no grant holds the HCA.
    std::vector<PlannedHca> exclusive;
    bool others = false;  // there are HCAs that no grant holds exclusively now
  };
  // Returns these HCAs, except the devices in `except`: lists the index, and reads only the grants of the HCAs that it
  // returns. Errors: the index cannot be listed.
  Result<OnceHeld> once_held(const std::set<std::string>& except) const;
  // The same for a command that only reads. Returns none if there is no ledger.
  static Result<OnceHeld> once_held_at(const std::string& path, const std::set<std::string>& except);
  // Limits the wait of later calls for the lock of a key to these milliseconds, for a process that has other work.
  void limit_waits(int ms) const;
  // Returns false if find_by_id() has no grant for this id: with one system call. A grant of the index may be stale.
  Result<bool> may_have_id(std::string_view id) const;
  // Returns the grants with a user of this id, which is the id of a container or a pod, and the claims that are
  // reserved for the pod with this UID. Reads no other grants.
  Result<std::vector<Grant>> find_by_id(std::string_view id, Unread* unread = nullptr) const;
  // Returns all grants, also stale ones. Reads every record: for commands that people run, not for the start of a
  // container.
  Result<std::vector<Grant>> list(Unread* unread = nullptr) const;

  // Marks the changes of this grant that LockedHcas::book() and bind() made through this object as done. Without
  // settle(), the next call rolls them back when this process has ended. Succeeds if there are no such changes or no
  // such grant.
  Result<void> settle(std::string_view key) const;

  // Removes a user from a grant when its container ends or its start fails. The grant of a container or token is
  // released with its user. A pod's grant (its owner is a network namespace) stays until the namespace is gone, but
  // loses the HCAs that an unfinished start of this user added. If no other user belongs to the user's pod, the pod
  // itself becomes a user of the grant, so that the pod's id still leads to the grant. Succeeds if there is no such
  // grant or user.
  // passed_over: set to true if the user stays, because the poststop may belong to another container: it names only id
  // and bundle, which two containers can share. The user stays while another process works on its start. The user also
  // stays while its process, or its container in the runtime's state, is not proven gone, unless that process is this
  // one or an ancestor.
  // Errors: EBUSY, a process is still in the user's cgroup; this is not checked while the user's start is rolled back.
  // If the release fails, the record notes that the user has ended. The grant is then held until recover(), or a later
  // request for its HCAs, can release it.
  Result<void> leave(const Owner& owner, std::string_view user_key, bool* passed_over = nullptr) const;
  // Records `pod` as the pod of the container `id` in each grant, for users of this id that have no pod yet. Succeeds
  // if there is no such user.
  Result<void> note_pod(std::string_view id, const std::string& pod) const;
  // Releases the grant, even if containers use it. Succeeds if there is none.
  Result<void> release_grant(std::string_view key) const;

  // Releases the grant of a claim, unless grants use its HCAs. Grants that have ended are released first. Returns the
  // labels of the grants that use them; none: the claim has no grant any more. deadline: limits the time that the
  // release of an ended grant waits. Errors: a grant of the claim cannot be read or released.
  Result<std::vector<std::string>> release_claim(const std::string& key, Deadline deadline) const;

  // Moves the grant of a token, which stands for a container before it exists, to the container or its pod. The change
  // is pending until settle(). If the token is a user of the pod's grant, the container replaces it. The container gets
  // the token's view. Returns nullopt if there is no such token: it is already bound, was released, or was never made.
  // Locks: takes the locks of the token's HCAs.
  // Errors: the token was booked for a container of another id or, where both are known, of another bundle. Then the
  // token stays unbound.
  Result<std::optional<Grant>> bind(std::string_view token, const Owner& owner, const GrantUser& user) const;

  // Repairs the changes that killed processes left unfinished. Reads only pending/, which is empty unless a change is
  // under way. This function runs before the work of every hook, so it is best effort and never waits: it skips changes
  // that another process has locked or that it cannot repair. Errors: pending/ cannot be listed.
  Result<void> repair_pending() const;
  // Releases stale grants, removes index entries without a grant and views that no user names, and corrects the
  // indexes. Reads each grant once in each round, and locks it only if it is stale or does not agree with the index.
  // The first round does not wait. If a grant or file is stuck, a second round waits for it until the deadline. A grant
  // that is stuck or cannot be read does not stop the rest. Errors: one error that names all stuck grants and files.
  Result<Recovered> recover(Deadline deadline = from_now(kRecoverPatience)) const;
  // Undoes effects (GrantEffects) that outlived their grant. key: the key of that grant. If the grant still exists and
  // is stale, releases it first. Returns false and releases nothing if the key still has a grant, or if a process that
  // is not proven gone works on a grant of this key. Otherwise ends the effects and calls rest() (the caller's own
  // clean-up) under the key's lock. Then returns true.
  // Locks: rest() must not take a lock of the ledger, and the caller must not hold one.
  // Errors: the lock is not free until the deadline; a file cannot be read; an effect cannot be ended.
  Result<bool> release(const std::string& key, Deadline deadline, const std::function<Result<void>()>& rest) const;

  // Returns the grants that this object has released, or from which it has removed a container of a pod, since the last
  // call of this function; oldest first.
  std::vector<Released> take_released() const;

  // Removes each view with copies that a grant has lost through this object and that no user names, and then the copies
  // that no view has. Best effort, and waits for no lock: recover() removes the rest, and reports errors. Reads every
  // grant, but only if the index shows no other user of such a view. Locks: the caller holds none.
  void remove_left_views() const;

  // Makes the view of these entries, at view_directory()/NAME. name: view_name() of the entries. Returns warnings,
  // among them one for each file of the node that cannot be copied: the view then lacks it, until a later call can copy
  // it. Keeps an existing view that is unchanged. Replaces a view that was changed, with a warning. Containers that
  // have the changed view mounted keep it. Call it after book() for a user that names the view, because recover() and
  // makers of other views remove views that no user names. Locks: the caller holds none.
  Result<std::vector<std::string>> make_view(const std::string& name, const std::vector<ViewEntry>& entries) const;
  std::string view_directory() const;
  const LedgerDirectory& directory() const;

  // Returns the text of the last note_links(): fabric::rdma_sysfs::KnownLinks. Empty: there is none, or it cannot be
  // read. Notes a text for later calls. Best effort: without it, they read the links of all HCAs.
  std::string noted_links() const;
  void note_links(std::string_view text) const;

 private:
  friend class KeptLedger;
  explicit Ledger(std::shared_ptr<const LedgerFiles> files);
  std::shared_ptr<const LedgerFiles> files_;
};

// Opens the ledger for the calls of a process that stays. If a call has ended, and nothing was made, removed or renamed
// in DIR since it opened the ledger, the next call uses the same descriptors, for one system call.
class KeptLedger {
 public:
  explicit KeptLedger(std::string path) : path_(std::move(path)) {}
  // Opens the ledger, or uses the descriptors of the last call. Parameters and errors: those of Ledger::open().
  Result<Ledger> open(std::shared_ptr<const GrantEffects> effects = nullptr, std::string container = {});

 private:
  std::string path_;
  std::shared_ptr<LedgerFiles> files_;
  struct stat seen_ {};  // state of DIR when files_ was opened
};

}  // namespace hook
