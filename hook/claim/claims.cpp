#include "hook/claim/claims.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/failure.hpp"
#include "base/file.hpp"
#include "base/file_name.hpp"
#include "base/json/json.hpp"
#include "base/process/root_lock.hpp"
#include "base/text.hpp"
#include "hook/apply/cdi_file.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/search.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/locks.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetryPause{200};
constexpr mode_t kClaimFileMode = 0600;  // the file has the token of the claim
constexpr std::string_view kFilePrefix = "rdma-init.io-claim-";
constexpr std::string_view kFileEnding = ".json";
constexpr std::size_t kLongestUid = 63;
constexpr std::size_t kMostClaimDevices = 32;  // the devices of all drivers (resource.k8s.io/v1)

std::string cdi_device(const std::string& uid, const std::string& device) {
  return fmt::format("uid-{}-{}", uid, device);
}

milliseconds left_until(Deadline deadline) {
  return milliseconds(base::ms_until(deadline, kKeyLockTimeoutMs));
}

Result<void> check_uid(std::string_view uid) {
  if (is_uid(uid)) return {};
  return Error{fmt::format("`{}` is not the UID of a claim", base::printable(uid, kLongestUid)), EINVAL,
               "pass the UID that Kubernetes gave the claim", FailureReason::kRefused};
}

Result<void> check_claim(const ClaimOfNode& claim) {
  TRY_VOID(check_uid(claim.uid));
  const auto wrong = [](std::string_view what, std::string_view text) {
    return Error{fmt::format("`{}` is not {}", base::printable(text, kLongestUid), what), EINVAL,
                 "make the claim again", FailureReason::kRefused};
  };
  if (claim.devices.size() > kMostClaimDevices)
    return make_error("has {} devices: at most {} are possible", claim.devices.size(), kMostClaimDevices);
  for (const ClaimDevice& device : claim.devices) {
    if (!is_uid(device.request)) return wrong("the name of a request", device.request);
    if (!is_uid(device.name)) return wrong("the name of a device", device.name);
    if (!is_file_name(device.hca, kLongestHcaName)) return wrong("the name of an HCA", device.hca);
    if (device.units == 0 || device.units > kMaxCount) return wrong("a number of shares", std::to_string(device.units));
  }
  for (const std::string& pod : claim.pods)
    if (!is_uid(pod)) return wrong("the UID of a pod", pod);
  return {};
}

// Returns the container that stands for all containers of the claim when its HCAs are decided: one with a network
// namespace, which therefore gets the rails that the claim's networks define.
ContainerRequest request_of(const ClaimOfNode& claim, Config config) {
  ContainerRequest requesting;
  requesting.admin = std::move(config);
  requesting.spec.has_netns = true;
  Request& request = requesting.request.emplace();
  request.selection = {.kind = HcaSelection::Kind::kList, .source = "its allocation"};
  for (const ClaimDevice& device : claim.devices) {
    if (device.is_admin) continue;
    auto& selectors = request.selection.selectors.selectors;
    selectors.insert(selectors.end(), device.units, {.pattern = device.hca, .port = {}});
    const ClaimTerms terms{device.mode, device.network, device.limits};
    const auto [at, is_new] = request.claimed.try_emplace(device.hca, terms);
    if (!is_new) at->second.limits = lower_of(at->second.limits, device.limits);
  }
  if (request.claimed.empty()) request.selection.kind = HcaSelection::Kind::kNone;
  return requesting;
}

// Returns what the record keeps of the claim's devices, one for each HCA: of several shares of an HCA, the terms of the
// first and the lowest limits count. The devices of the ledger are not known yet (set_devices()).
std::vector<ClaimHca> hcas_of(const ClaimOfNode& claim) {
  std::vector<ClaimHca> hcas;
  for (const ClaimDevice& device : claim.devices) {
    ClaimHca hca{.name = device.hca,
                 .device = device.hca,
                 .label = device.name,
                 .is_admin = device.is_admin,
                 .network = device.network.value_or(""),
                 .limits = device.limits};
    const auto same = std::ranges::find_if(
        hcas, [&](const ClaimHca& one) { return one.name == hca.name && one.is_admin == hca.is_admin; });
    if (same == hcas.end()) {
      hcas.push_back(std::move(hca));
    } else {
      same->limits = lower_of(same->limits, hca.limits);
    }
  }
  return hcas;
}

// inventory: has most of the HCAs, so that they are not read again.
void set_devices(const fabric::Inventory& inventory, const std::string& root, std::vector<ClaimHca>& hcas) {
  std::vector<std::string> names;
  for (const ClaimHca& hca : hcas)
    names.push_back(hca.name);
  const KnownDevices known = devices_of(names, inventory, root);
  for (ClaimHca& hca : hcas)
    if (const std::string* const booked = known.booked_under(hca.name)) hca.device = *booked;
}

// Returns whether the record is of the same devices. Their present names and places can be other ones.
bool is_same_allocation(const std::vector<ClaimHca>& recorded, const std::vector<ClaimHca>& now) {
  return std::ranges::equal(recorded, now, [](const ClaimHca& left, const ClaimHca& right) {
    return left.label == right.label && left.is_admin == right.is_admin && left.network == right.network;
  });
}

// Returns the CDI devices of the claim, one for each device. Errors: an HCA is not on the node, is in no pool or has no
// device node.
Result<std::vector<CdiDevice>> cdi_devices(const ClaimOfNode& claim, const NodeMap& map,
                                           const fabric::Inventory& inventory, NodeOptions own) {
  own.rdma_cm = false;  // rdma_cm is in the edits that all devices share
  std::vector<CdiDevice> devices;
  for (const ClaimDevice& device : claim.devices) {
    std::string name = cdi_device(claim.uid, device.name);
    if (std::ranges::find(devices, name, &CdiDevice::name) != devices.end()) continue;
    const NodeHca* const node = map.find(device.hca);
    const std::string shown = base::printable(device.hca);
    if (!node)
      return Error{fmt::format("`{}` is not on this node", shown), 0, "load the driver of the HCA",
                   FailureReason::kNoHca};
    if (!node->pool) return make_error("`{}` is in no pool of config.json", shown);
    if (!node->hca->uverbs)
      return Error{fmt::format("`{}` has no uverbs node", shown), 0, "run `modprobe ib_uverbs`", FailureReason::kNoHca};
    devices.push_back({std::move(name), TRY(planned_nodes(own, inventory, {node}))});
  }
  return devices;
}

// Rolls the booking back unless it is kept.
class PendingClaim {
 public:
  PendingClaim(const Ledger& ledger, const Owner& owner, bool had_before)
      : ledger_(ledger), owner_(owner), had_before_(had_before) {}
  PendingClaim(const PendingClaim&) = delete;
  PendingClaim& operator=(const PendingClaim&) = delete;
  ~PendingClaim() {
    if (is_kept_) return;
    // A failure leaves the booking pending: the next call continues or rolls it back.
    if (had_before_) (void)ledger_.settle(owner_.key).has_value();
    if (!had_before_) (void)ledger_.leave(owner_, owner_.key).has_value();
  }
  Result<void> keep() {
    is_kept_ = true;
    return ledger_.settle(owner_.key);
  }

 private:
  const Ledger& ledger_;
  const Owner& owner_;
  bool had_before_;
  bool is_kept_ = false;
};

// One attempt to prepare a claim.
class Preparation {
 public:
  Preparation(const ClaimOfNode& claim, const ClaimSettings& settings, base::Log& log)
      : claim_(claim), settings_(settings), call_{settings.node, log} {}

  Result<void> run(Deadline deadline) {
    const Config config = TRY(about(FailureReason::kConfig, read_config(settings_.node.config)));
    requesting_ = request_of(claim_, config);
    const OpenLedger& open = *TRY(OpenLedger::keep(call_));
    // One call at a time works for a claim, also if two rdma-dra run during an update.
    const auto turn = TRY(
        base::LockFile::take(fmt::format("{}/claim-{}.lock", settings_.node.ledger, claim_.uid), left_until(deadline)));
    lock_ms_ = static_cast<int>(left_until(deadline).count());
    open.ledger.limit_waits(lock_ms_);
    open.repair(call_.log);
    auto before = TRY(open.ledger.find(claim_owner(claim_.uid, {}).key));
    if (before && before->pending) before.reset();
    TRY_VOID(set_owner(before));
    PendingClaim pending(open.ledger, owner_, before.has_value());
    auto decided = decide(before ? &*before : nullptr);
    // While containers of a prepared claim run, its HCAs can be in their network namespaces.
    const bool has_file = ::access(claim_file(settings_.cdi_directory, claim_.uid).c_str(), F_OK) == 0;
    if (!decided && !(before && has_file)) return decided;
    if (decided) TRY_VOID(write_file());
    TRY_VOID(pending.keep());
    open.report(Releaser::kOther, call_);
    return {};
  }

 private:
  // Sets the owner of the grant. before: the grant of the prepared claim. Errors: it is of another allocation.
  Result<void> set_owner(const std::optional<Grant>& before) {
    ClaimFacts facts{.space = claim_.space,
                     .name = claim_.name,
                     .token = before ? before->owner.claim->token : TRY(new_token()),
                     .pods = claim_.pods,
                     .hcas = hcas_of(claim_)};
    if (before && !is_same_allocation(before->owner.claim->hcas, facts.hcas))
      return Error{"was prepared with other devices", EBUSY,
                   "delete the pods that use the claim, so that Kubernetes ends it, and make it again",
                   FailureReason::kRefused};
    if (before) facts.hcas = before->owner.claim->hcas;
    owner_ = claim_owner(claim_.uid, std::move(facts));
    return {};
  }

  // Decides and books. before: the grant of the prepared claim, whose HCAs are decided about again; nullptr: none.
  Result<void> decide(const Grant* before) {
    const Ledger& ledger = call_.ledger->ledger;
    const GrantUser user{.key = owner_.key, .id = claim_.uid, .process = {}};
    bool is_booked = false;
    if (requesting_.request->selection.kind != HcaSelection::Kind::kNone) {
      // Without variables: rdma-nri and rdma-runtime set those of each container.
      const ForeseeInput input{requesting_, owner_, settings_.node, &ledger, false, "", true, &call_, lock_ms_};
      found_ = TRY(find_plan(input, before, [&](ForeseenPlan& found) -> Result<void> {
        auto hcas = found.plan.hcas;
        hcas.insert(hcas.end(), found.plan.also_open.begin(), found.plan.also_open.end());
        is_booked = true;
        if (!before) set_devices(found.inventory, settings_.node.root, owner_.claim->hcas);
        return found.locks->book(owner_, std::move(hcas), user);
      }));
      call_.log.warnings(call_.notes);
      call_.log.warnings(found_.plan.warnings);
    }
    if (is_booked) return {};
    // Also a claim without an HCA to book is recorded, with its pods.
    if (!before) set_devices({}, settings_.node.root, owner_.claim->hcas);
    auto locks = TRY(ledger.lock({}));
    return locks.book(owner_, {}, user);
  }

  Result<void> write_file() {
    const bool has_admin = std::ranges::any_of(claim_.devices, &ClaimDevice::is_admin);
    if (has_admin) found_.inventory = TRY(read_whole_node(requesting_.admin, settings_.node));
    const NodeMap map(found_.inventory, requesting_.admin);
    const auto devices = TRY(cdi_devices(claim_, map, found_.inventory, requesting_.admin.nodes));
    Plan common;
    common.nodes = TRY(planned_nodes(requesting_.admin.nodes, found_.inventory, {}));
    common.env = found_.plan.env;
    common.env[claim_variable(claim_.uid)] = owner_.claim->token;
    std::error_code failed;
    std::filesystem::create_directories(settings_.cdi_directory, failed);
    if (failed) return sys_error(failed.value(), "cannot make `{}`", settings_.cdi_directory);
    return write_cdi(claim_file(settings_.cdi_directory, claim_.uid),
                     cdi_spec_of(devices, common, {.kind = kClaimKind, .hook = {}}), kClaimFileMode);
  }

  const ClaimOfNode& claim_;
  const ClaimSettings& settings_;
  Call call_;
  ContainerRequest requesting_;
  Owner owner_;
  ForeseenPlan found_;
  int lock_ms_ = 0;  // longest wait for the locks of HCAs
};

// Waits before the next attempt. Returns false if the deadline would pass.
bool pause_until(Deadline deadline) {
  if (std::chrono::steady_clock::now() + kRetryPause > deadline) return false;
  std::this_thread::sleep_for(kRetryPause);
  return true;
}

}  // namespace

bool is_uid(std::string_view text) {
  return !text.empty() && text.size() <= kLongestUid &&
         std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::string claim_file(std::string_view directory, std::string_view uid) {
  return fmt::format("{}/{}{}{}", directory, kFilePrefix, uid, kFileEnding);
}

bool can_pass(const Error& error) {
  using enum FailureReason;
  return error.code == EAGAIN || error.code == ESTALE || (error.reason != kRefused && error.reason != kConfig);
}

Result<std::vector<PreparedDevice>> prepare_claim(const ClaimOfNode& claim, const ClaimSettings& settings,
                                                  base::Log& log, Deadline deadline) {
  const std::string name = fmt::format("claim {}", base::printable(fmt::format("{}/{}", claim.space, claim.name)));
  if (auto valid = check_claim(claim); !valid) return base::wrap(std::move(valid).error(), name);
  std::vector<PreparedDevice> prepared;
  if (claim.devices.empty()) return prepared;  // all devices of the claim are of other drivers
  for (;;) {
    auto done = Preparation(claim, settings, log).run(deadline);
    if (done) break;
    if (!can_pass(done.error()) || !pause_until(deadline)) return base::wrap(std::move(done).error(), name);
  }
  for (const ClaimDevice& device : claim.devices)
    prepared.push_back({device.request,
                        device.name,
                        device.share_id,
                        {fmt::format("{}={}", kClaimKind, cdi_device(claim.uid, device.name))}});
  return prepared;
}

Result<void> unprepare_claim(std::string_view uid, const ClaimSettings& settings, base::Log& log, Deadline deadline) {
  TRY_VOID(check_uid(uid));
  Call call{settings.node, log};
  const std::string key = claim_owner(uid, {}).key;
  if (const auto open = TRY(OpenLedger::open_existing(call))) {
    const auto turn =
        TRY(base::LockFile::take(fmt::format("{}/claim-{}.lock", settings.node.ledger, uid), left_until(deadline)));
    open->repair(log);
    auto users = open->ledger.release_claim(key, deadline);
    while ((!users || !users->empty()) && pause_until(deadline))
      users = open->ledger.release_claim(key, deadline);
    open->report(Releaser::kOther, call);
    if (!users) return base::wrap(std::move(users).error(), fmt::format("claim with the UID {}", uid));
    if (!users->empty())
      return Error{fmt::format("claim with the UID {}: its HCAs are in use by {}", uid, base::join_first(*users, 3)),
                   EBUSY, "stop these containers; Kubernetes then calls again", FailureReason::kBusy};
  }
  // The file is removed last: a killed call leaves no file, because Kubernetes calls again until this succeeds.
  const std::string path = claim_file(settings.cdi_directory, uid);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return sys_error(errno, "cannot remove `{}`", path);
}

Result<std::vector<ClaimOnRecord>> claims_on_record(const std::string& ledger, std::vector<Error>& unread) {
  std::vector<ClaimOnRecord> claims;
  std::vector<std::pair<std::string, std::string>> users;  // key of a claim, and label of a grant that uses it
  const auto use = [&](const Grant& grant) -> Result<void> {
    std::set<std::string> used;
    for (const PlannedHca& hca : grant.hcas)
      if (!hca.claim.empty() && !grant.stale && used.insert(hca.claim).second)
        users.emplace_back(hca.claim, grant.owner.label);
    if (!grant.owner.claim) return {};
    const ClaimFacts& facts = *grant.owner.claim;
    ClaimOnRecord& claim = claims.emplace_back(ClaimOnRecord{.uid = claim_uid(grant.owner.key),
                                                             .space = facts.space,
                                                             .name = facts.name,
                                                             .pods = facts.pods,
                                                             .hcas = {},
                                                             .users = {},
                                                             .is_pending = grant.pending});
    for (const ClaimHca& hca : facts.hcas)
      if (!hca.is_admin) claim.hcas.push_back(hca.name);
    return {};
  };
  TRY(Ledger::for_each_at(ledger, use, &unread));
  for (const auto& [key, label] : users) {
    const auto claim = std::ranges::find(claims, claim_uid(key), &ClaimOnRecord::uid);
    if (claim != claims.end()) claim->users.push_back(label);
  }
  return claims;
}

void sweep_claims(const ClaimSettings& settings, const base::Log& log) {
  sweep_cdi(settings.cdi_directory, log);
  const auto directory = base::Directory::open(settings.cdi_directory);
  // Without a ledger, as with a wrong --ledger, no missing record proves that a claim has ended.
  if (!directory || !base::Directory::open(settings.node.ledger + "/grants")) return;
  for (const std::string& name : directory->list()) {
    std::string_view uid = name;
    if (!uid.starts_with(kFilePrefix) || !uid.ends_with(kFileEnding)) continue;
    uid.remove_prefix(kFilePrefix.size());
    uid.remove_suffix(std::min(kFileEnding.size(), uid.size()));
    const std::string record = fmt::format("{}/grants/{}.json", settings.node.ledger, claim_owner(uid, {}).key);
    if (!is_uid(uid) || ::access(record.c_str(), F_OK) == 0 || errno != ENOENT) continue;
    if (::unlinkat(directory->fd(), name.c_str(), 0) != 0 && errno != ENOENT)
      log.warning(sys_error(errno, "cannot remove `{}/{}`", settings.cdi_directory, name).message);
  }
}

}  // namespace hook
