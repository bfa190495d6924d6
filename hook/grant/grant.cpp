#include "hook/grant/grant.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "base/file_name.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"
#include "fabric/read_node.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/grant/claims_of.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/search.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/plan/parts.hpp"
#include "hook/rails/add.hpp"
#include "hook/rails/open_hcas.hpp"

namespace hook {
namespace {

// Returns the names of the views that the spec already mounts, for example because rdma-runtime has booked for the
// container, or because the container was restored from a checkpoint.
std::vector<std::string> mounted_views(const ContainerSpec& spec, const std::string& views) {
  const std::string above = views + "/";
  std::vector<std::string> names;
  for (const SpecMount& mount : spec.mounts) {
    if (!mount.source.starts_with(above)) continue;
    std::string name = mount.source.substr(above.size(), mount.source.find('/', above.size()) - above.size());
    if (is_file_name(name, kLongestKey)) add_once(std::move(name), names);
  }
  return names;
}

bool has_limit(const ContainerSpec& spec, const std::optional<std::uint64_t>& memlock) {
  return !memlock || (spec.memlock && usable(*spec.memlock) >= *memlock);
}

// Removes the parts of the adjustment that the call that booked has written, if the spec has the memlock limit and all
// nodes: the runtime then makes the nodes and their device rules. A node of an HCA that moved with a rail has another
// number than in the spec, so all parts stay. createRuntime must add the mounts that only it can make, and RDMA limits,
// because crun ignores linux.resources.rdma (src/libcrun/cgroup-resources.c, 1.29).
void leave_out_written(Adjustment& adjustment) {
  if (adjustment.memlock || !std::ranges::all_of(adjustment.nodes, &AdjustedNode::is_present)) return;
  adjustment = {.rdma_limits = std::move(adjustment.rdma_limits), .mounts = std::move(adjustment.mounts)};
}

// Returns true if each uverbs node of the container belongs to a booked HCA. Each node is looked up again, because
// another HCA can have the number that was booked since its driver was bound anew. The booked number counts only if the
// node cannot be looked up. In mode `hca`, a physical function is held with its VFs: the nodes of these VFs count too.
bool has_only_nodes_of(const Grant& bound, const std::vector<SpecDevice>& devices, const std::string& root) {
  return std::ranges::all_of(devices, [&](const SpecDevice& device) {
    const auto number = device.uverbs();
    const PlannedHca* const hca = number ? find_by_node(bound.hcas, root, *number) : nullptr;
    if (hca) return !hca->held_only || hca->mode == Mode::kHca;
    const auto is_recorded = [&](const PlannedHca& booked) {
      return booked.open && booked.open->node && device.major == booked.open->node->major &&
             device.minor == booked.open->node->minor;
    };
    return number && !fabric::device_of_uverbs(root, *number) && std::ranges::any_of(bound.hcas, is_recorded);
  });
}

// Warns about HCAs that a container gets beside those of its bound grant, because another program added their nodes or
// the configuration changed. Such HCAs are booked, so that no other container gets them exclusively, and the container
// starts as if the nodes had come first. Its mounts exist already, so its view does not show them. VFs of an exclusive
// HCA (Mode::kExclusive) have no node in the container.
void warn_of_hidden(const std::vector<std::string>& own, Plan& plan) {
  const auto warn_of = [&](const PlannedHca& hca) {
    if (std::ranges::find(own, hca.name) != own.end()) return;
    plan.warnings.push_back(fmt::format(
        "`{}` is booked for the container, but its /sys/class/infiniband does not show it, because the container's "
        "HCAs "
        "changed after they were allocated; remedy: request all HCAs from rdma-init, or let the other program add its "
        "device nodes before rdma-init (rdma-nri: a higher `--index`)",
        base::printable(hca.name)));
  };
  std::ranges::for_each(plan.hcas, warn_of);
  for (const PlannedHca& hca : plan.also_open)
    if (hca.mode == Mode::kHca) warn_of(hca);
}

// The steps of one call of grant(). The booking has their results.
class Granting {
 public:
  explicit Granting(Booking& booking)
      : booking_(booking),
        requesting_(&booking.requesting),
        who_(booking.who),
        way_(booking.way),
        call_(booking.call),
        ledger_(booking.call.ledger->ledger) {}

  // Carries out a grant in a fixed order. The repair comes first, so that HCAs of killed calls no longer count as held.
  // booking_.begin() comes before bind_token() changes the ledger, so that ~Booking() rolls back every change after an
  // error.
  Result<void> carry_out() {
    call_.timing.step("read");
    call_.ledger->repair(call_.log);
    call_.timing.step("repair");
    TRY_VOID(booking_.begin());
    TRY_VOID(join());
    const auto bound = way_.binds_token ? TRY(bind_token()) : std::nullopt;
    if (!bound || !is_all_bound(*bound)) return decide_and_prepare(bound);
    booking_.plan.hcas = bound->hcas;
    std::erase_if(booking_.plan.hcas, [](const PlannedHca& hca) { return hca.held_only; });
    return {};
  }

 private:
  // Adds the HCAs of the claims whose CDI devices the container has.
  Result<void> join() {
    const auto claims = TRY(claims_of(*requesting_, ledger_, call_.node.root));
    if (claims.empty()) return {};
    joined_ = *requesting_;
    join_claims(claims, call_.node.root, booking_.who.owner, *joined_.request);
    requesting_ = &joined_;
    return {};
  }

  // Moves the grant that rdma-runtime or rdma-nri booked under the token in the container's annotation to the
  // container. Returns nullopt if there is no such grant.
  Result<std::optional<Grant>> bind_token() {
    const auto token = requesting_->spec.annotations.find(kGrantAnnotation);
    if (token == requesting_->spec.annotations.end()) return std::optional<Grant>();
    return ledger_.bind(token->second, who_.owner, who_.user);
  }

  // Returns true if the call that booked (rdma-runtime or rdma-nri) put the whole plan into the spec, and no other
  // component has added the node of another HCA since. Then createRuntime has nothing to apply.
  bool is_all_bound(const Grant& bound) const {
    return !who_.owner.netns && !may_get_rails(*requesting_) && !limits_rdma(requesting_->admin) &&
           !needs_own_view(*requesting_) && has_limit(requesting_->spec, requesting_->admin.memlock) &&
           has_only_nodes_of(bound, requesting_->request->granted_nodes, call_.node.root);
  }

  // Decides, books, adds rails and views, and leaves in the booking what the caller must write. The node is read before
  // the HCAs are locked, so that the locks are held only while this call decides and books. The booking is recorded as
  // pending before the network or the container changes. bound: the grant that was booked for this container before its
  // creation.
  Result<void> decide_and_prepare(const std::optional<Grant>& bound) {
    // The call that booked has put the mounts into config.json, unless only createRuntime can make them. The runtime
    // has made them by now, so another view would be a second one beside the first.
    const bool has_mounts = bound && !mounted_views(requesting_->spec, ledger_.view_directory()).empty();
    const ForeseeInput input{*requesting_, who_.owner,     call_.node,
                             &ledger_,     way_.variables, way_.variables ? call_.bundle : "",
                             has_mounts,   &call_};
    ForeseenPlan found = TRY(decide_and_book(input, bound));
    Plan& plan = booking_.plan;
    plan = std::move(found.plan);
    call_.log.warnings(plan.warnings);
    call_.timing.step("decide");

    // Rails come before the nodes, because an RDMA device that moves into the namespace may get another number.
    if (!way_.netns_path.empty() && !plan.netdevs.empty())
      TRY_VOID(about(FailureReason::kNetwork, add_network(found.inventory, plan)));
    if (!bound || !plan.mounts.empty()) TRY_VOID(make_views(plan));
    call_.timing.step("view");
    booking_.adjustment = adjust(plan, requesting_->spec, who_.token);
    if (bound) leave_out_written(booking_.adjustment);
    return {};
  }

  // Decides and books. The HCAs stay locked from the check of their grants until the booking is recorded, so that no
  // other call allocates them.
  Result<ForeseenPlan> decide_and_book(const ForeseeInput& input, const std::optional<Grant>& bound) {
    auto found = find_plan(input, bound ? &*bound : nullptr, [&](ForeseenPlan& free) {
      if (input.has_mounts) warn_of_hidden(free.own, free.plan);
      note_open(free.inventory, free.own, input.node.root, free.plan);
      auto views = mounted_views(requesting_->spec, ledger_.view_directory());
      if (!free.plan.mounts.empty()) views.insert(views.begin(), free.plan.view_name);
      return book(*free.locks, free.plan, who_, views);
    });
    call_.log.warnings(call_.notes);
    if (found && !found->links.empty()) ledger_.note_links(found->links);
    return found;
  }

  // Adds the rails of the plan. Comes after the booking: the roll-back of the booking also restores the rails. Sets the
  // numbers of the plan's device nodes to those of the RDMA devices inside the namespace.
  Result<void> add_network(const fabric::Inventory& inventory, Plan& plan) {
    const std::string& path = way_.netns_path;
    // add_rails() enters the namespace by this descriptor, so it is the namespace to which the path leads now.
    base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.ok()) return sys_error(errno, "cannot open the container's network namespace `{}`", path);
    NetnsIdentity netns = TRY(identify_netns(path));
    const bool first = TRY(is_first_user());
    RailsInput input{.plan = plan,
                     .config = requesting_->admin,
                     .inventory = inventory,
                     .ledger = ledger_,
                     .ledger_directory = call_.node.ledger,
                     .sys = call_.node.root + "/sys",
                     .owner = who_.owner,
                     .netns = std::move(netns),
                     .netns_fd = std::move(fd),
                     .ipam = call_.ipam,
                     .pod = pod_identity(requesting_->spec, requesting_->caller.engine),
                     .before_first_start = first,
                     .hurried = way_.hurried};
    const auto report = TRY(add_rails(std::move(input), call_.timing));
    call_.log.warnings(report.warnings);
    if (!report.alignment.empty()) call_.log.info(report.alignment);
    renumber(inventory, report.nodes, plan);
    return {};
  }

  // Returns true if no other container uses this grant. Only then may GIDs still move to other indices, because a
  // running container uses the present indices.
  Result<bool> is_first_user() {
    const auto grant = TRY(ledger_.find(who_.owner.key));
    return !grant ||
           std::ranges::all_of(grant->users, [&](const GrantUser& other) { return other.key == who_.user.key; });
  }

  // Makes the view that is the source of mounts in the plan or in the spec. A view that the spec mounts may be missing,
  // because recover() removes a view that no user of a grant names.
  Result<void> make_views(const Plan& plan) {
    const auto mounted = mounted_views(requesting_->spec, ledger_.view_directory());
    if (plan.mounts.empty() && std::ranges::find(mounted, plan.view_name) == mounted.end()) return {};
    call_.log.warnings(TRY(ledger_.make_view(plan.view_name, plan.view)));
    if (requesting_->spec.may_remount) call_.log.warnings(TRY(ledger_.make_view(view_name({}), {})));
    return {};
  }

  Booking& booking_;
  const ContainerRequest* requesting_;
  ContainerRequest joined_;  // the request with the HCAs of claims
  const Grantee& who_;
  const Way& way_;
  Call& call_;
  const Ledger& ledger_;
};

// Locks the bundle until the turn ends, so that one call at a time books for its container. Without the lock, two calls
// could write one config.json, each for its own grant. A bundle that cannot be opened is no error here, because the
// runtime reports it. The lock of a bundle that other users can open is no proof, because they can hold it: a file of
// the ledger is locked too.
Result<Turn> take_turn(const std::string& bundle, const std::string& ledger) {
  constexpr std::chrono::milliseconds kNoWait{0};
  Turn turn;
  turn.bundle.reset(::open(bundle.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!turn.bundle.ok() || ::fstat(turn.bundle.get(), &status) != 0) return turn;
  const auto busy = [&](const std::string& why) {
    return Error{
        fmt::format("another call is allocating for the container of bundle `{}`{}", base::printable(bundle), why),
        EBUSY, "create one container of a bundle at a time", FailureReason::kBusy};
  };
  if (is_private(status)) {
    const auto locked = lock_within(turn.bundle.get(), kNoWait);
    if (locked.has_value() && !*locked) return busy("");
    return turn;
  }
  auto file = LockFile::take(fmt::format("{}/bundle-{:x}-{:x}.lock", ledger, status.st_dev, status.st_ino), kNoWait);
  if (!file && file.error().code != EAGAIN) return file.error();
  if (!file) return busy(": " + file.error().message);
  turn.file.emplace(std::move(file).value());
  const auto old = take_old_lock(turn.bundle.get(), bundle, kNoWait);
  if (!old && old.error().code == EAGAIN) return busy(": " + old.error().message);
  return turn;
}

// Checks that no other container of this id and bundle lives. Errors (EBUSY): such a container, or the `create` that
// booked for it, has not ended.
Result<void> check_no_other(const Ledger& ledger, const GrantUser& user) {
  Ledger::Unread unread;  // ignored: recover() reports these errors
  for (const Grant& grant : TRY(ledger.find_by_id(user.id, &unread))) {
    for (const GrantUser& other : grant.users) {
      if (other.id != user.id || other.bundle.empty() || !other.process || other.process == user.process) continue;
      const auto same = is_same_directory(other.bundle, user.bundle);
      if (same.has_value() && *same) TRY_VOID(check_ended(other));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Booking>> grant(const ContainerRequest& requesting, const Grantee& who, const Way& way,
                                       Call& call) {
  auto booking = std::make_unique<Booking>(requesting, who, way, call);
  call.ledger->rails->begin_start();
  TRY_VOID(about(FailureReason::kLedger, Granting(*booking).carry_out()));
  return booking;
}

Result<std::unique_ptr<Booking>> grant_in_spec(const ContainerRequest& requesting, const ProcessIdentity& requester,
                                               Call& call) {
  GrantUser user{.key = {}, .id = call.container, .process = requester, .bundle = call.bundle, .state = call.state};
  const auto place = call.state ? std::optional(root_name(*call.state)) : std::nullopt;
  const Grantee who = TRY(grantee_of(requesting.spec, std::move(user), place));
  const OpenLedger& open = *TRY(OpenLedger::keep(call));
  if (who.owner.kind == Owner::Kind::kToken) open.ledger.expect_new(who.owner.key);
  Turn turn;
  // With call.state the bundle needs no lock: the user of the grant is the container itself, not a new token for each
  // call, so the ledger refuses the second of two calls for one container.
  if (!call.state) {
    turn = TRY(take_turn(call.bundle, call.node.ledger));
    TRY_VOID(about(FailureReason::kLedger, check_no_other(open.ledger, who.user)));
  }
  auto booking = TRY(grant(requesting, who, {.event = call.state ? "granted" : "booked", .variables = true}, call));
  booking->turn = std::move(turn);
  return booking;
}

}  // namespace hook
