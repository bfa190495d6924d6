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
#include "base/process/root_lock.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "base/warnings.hpp"
#include "fabric/read_node.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/search.hpp"
#include "hook/ledger/gone.hpp"
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

// Returns the names of the first HCAs, for people. The event line after this text has all names.
std::string some_names(const Plan& plan) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan.hcas)
    names.push_back(hca.name);
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return base::join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

// Returns true if each uverbs node of the container belongs to a booked HCA. Each node is looked up again, because
// another HCA can have the number that was booked since its driver was bound anew. The booked number counts only if the
// node cannot be looked up. In mode `hca`, a physical function is held with its VFs: the nodes of these VFs count too.
bool has_only_nodes_of(const Grant& bound, const std::vector<SpecDevice>& devices, const std::string& root) {
  return std::all_of(devices.begin(), devices.end(), [&](const SpecDevice& device) {
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

// The state and the steps of one call of grant().
class Granting {
 public:
  Granting(const OpenLedger& open, const ContainerRequest& requesting, const Grantee& who, const Way& way, Call& call)
      : open_(open), requesting_(requesting), who_(who), way_(way), call_(call) {}

  // Carries out a grant in a fixed order. The repair comes first, so that HCAs of killed calls no longer count as held.
  // `booking` exists before bind_token() changes the ledger, so that ~Booking() rolls back every change after an error.
  // booking.finish() comes last: if this process is killed before it, the next call rolls the changes back.
  Result<void> carry_out() {
    call_.timing.step("read");
    open_.repair(call_.log);
    call_.timing.step("repair");
    const bool had_before = TRY(was_allocated_before(open_.ledger, who_));
    Booking booking(open_.ledger, who_, *open_.rails, call_.log, had_before);
    const auto bound = way_.binds_token ? TRY(bind_token()) : std::nullopt;
    Plan plan;
    if (bound && is_all_bound(*bound)) {
      plan.hcas = bound->hcas;
      std::erase_if(plan.hcas, [](const PlannedHca& hca) { return hca.held_only; });
    } else {
      plan = TRY(decide_and_apply(bound));
    }
    TRY_VOID(booking.finish());
    call_.timing.step("ledger");
    // "kept" means that an earlier call granted the HCAs, for example if the engine runs the hook at prestart and again
    // at createRuntime.
    if (!plan.hcas.empty()) note_grant(had_before ? "kept" : way_.event, plan);
    return {};
  }

 private:
  // Moves the grant that rdma-runtime or rdma-nri booked under the token in the container's annotation to the
  // container. Returns nullopt if there is no such grant.
  Result<std::optional<Grant>> bind_token() {
    const auto token = requesting_.spec.annotations.find(kGrantAnnotation);
    if (token == requesting_.spec.annotations.end()) return std::optional<Grant>();
    return open_.ledger.bind(token->second, who_.owner, who_.user);
  }

  // Returns true if the call that booked (rdma-runtime or rdma-nri) put the whole plan into the spec, and no other
  // component has added the node of another HCA since. Then createRuntime has nothing to apply.
  bool is_all_bound(const Grant& bound) const {
    return !who_.owner.netns && !may_get_rails(requesting_) && !limits_rdma(requesting_.admin) &&
           !needs_own_view(requesting_) && has_limit(requesting_.spec, requesting_.admin.memlock) &&
           has_only_nodes_of(bound, requesting_.request->given, call_.node.root);
  }

  // Decides, books and applies. The node is read before the HCAs are locked, so that the locks are held only while this
  // call decides and books. The booking is recorded as pending before the network or the container changes.
  // bound: the grant that was booked for this container before its creation.
  Result<Plan> decide_and_apply(const std::optional<Grant>& bound) {
    const Ledger& ledger = open_.ledger;
    // The call that booked has put the mounts into config.json, unless only createRuntime can make them. The runtime
    // has made them by now, so another view would be a second one beside the first.
    const bool has_mounts = bound && !mounted_views(requesting_.spec, ledger.view_directory()).empty();
    const ForeseeInput input{
        requesting_, who_.owner, call_.node, &ledger, way_.variables, way_.variables ? call_.bundle : "", has_mounts};
    Found found = TRY(decide_and_book(input, bound));
    Plan plan = std::move(found.foreseen.plan);
    call_.log.warnings(plan.warnings);
    call_.timing.step("decide");

    // Rails come before the nodes, because an RDMA device that moves into the namespace may get another number.
    if (!way_.network.netns_path.empty() && !plan.netdevs.empty())
      TRY_VOID(about(FailureReason::kNetwork, add_network(found.inventory, plan)));
    if (!bound || !plan.mounts.empty()) TRY_VOID(make_views(plan));
    call_.timing.step("view");
    Adjustment adjustment = adjust(plan, requesting_.spec, who_.token);
    if (bound) leave_out_written(adjustment);
    TRY_VOID(way_.apply(plan, adjustment));
    return plan;
  }

  // Decides and books. The HCAs stay locked from the check of their grants until the booking is recorded, so that no
  // other call allocates them.
  Result<Found> decide_and_book(const ForeseeInput& input, const std::optional<Grant>& bound) {
    const BookFound book_found = [&](const fabric::Inventory& inventory, ForeseenPlan& foreseen) {
      Plan& plan = foreseen.plan;
      note_open(inventory, foreseen.own, input.node.root, plan);
      auto views = mounted_views(input.requesting.spec, input.ledger->view_directory());
      if (!plan.mounts.empty()) views.insert(views.begin(), plan.view_name);
      return book(*foreseen.locks, plan, who_, views);
    };
    std::vector<std::string> unknown;
    auto found = bound ? find_bound_plan(input, *bound, unknown, call_.timing, book_found)
                       : find_plan(input, unknown, call_.timing, book_found);
    call_.log.warnings(unknown);
    return found;
  }

  // Adds the rails of the plan. Comes after the booking: the roll-back of the booking also restores the rails. Sets the
  // numbers of the plan's device nodes to those of the RDMA devices inside the namespace.
  Result<void> add_network(const fabric::Inventory& inventory, Plan& plan) {
    const std::string& path = way_.network.netns_path;
    // add_rails() enters the namespace by this descriptor, so it is the namespace to which the path leads now.
    base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.ok()) return sys_error(errno, "cannot open the container's network namespace `{}`", path);
    NetnsIdentity netns = TRY(identify_netns(path));
    const bool first = TRY(is_first_user());
    RailsInput input{.plan = plan,
                     .config = requesting_.admin,
                     .inventory = inventory,
                     .ledger = open_.ledger,
                     .ledger_directory = call_.node.ledger,
                     .sys = call_.node.root + "/sys",
                     .owner = who_.owner,
                     .netns = std::move(netns),
                     .netns_fd = std::move(fd),
                     .ipam = call_.ipam,
                     .pod = pod_identity(requesting_.spec, requesting_.caller.engine),
                     .before_first_start = first,
                     .hurried = way_.network.hurried};
    const auto report = TRY(add_rails(std::move(input), call_.timing));
    call_.log.warnings(report.warnings);
    if (!report.alignment.empty()) call_.log.info(report.alignment);
    renumber(inventory, report.nodes, plan);
    return {};
  }

  // Returns true if no other container uses this grant. Only then may GIDs still move to other indices, because a
  // running container uses the present indices.
  Result<bool> is_first_user() {
    const auto grant = TRY(open_.ledger.find(who_.owner.key));
    return !grant || std::all_of(grant->users.begin(), grant->users.end(),
                                 [&](const GrantUser& other) { return other.key == who_.user.key; });
  }

  // Makes the view that is the source of mounts in the plan or in the spec. A view that the spec mounts may be missing,
  // because recover() removes a view that no user of a grant names.
  Result<void> make_views(const Plan& plan) {
    const Ledger& ledger = open_.ledger;
    const auto mounted = mounted_views(requesting_.spec, ledger.view_directory());
    if (plan.mounts.empty() && std::ranges::find(mounted, plan.view_name) == mounted.end()) return {};
    call_.log.warnings(TRY(ledger.make_view(plan.view_name, plan.view)));
    if (requesting_.spec.may_remount) call_.log.warnings(TRY(ledger.make_view(view_name({}), {})));
    return {};
  }

  // Logs the grant, and counts it in the outcome. The logged rails are all rails in the container's network namespace,
  // including rails of other containers of its pod.
  void note_grant(std::string_view event, const Plan& plan) {
    const auto rails = plan.netdevs.empty() ? std::nullopt : read_rails_of(call_.node.ledger, who_.owner.key);
    std::optional<std::string> require;
    if (const auto set = plan.env.find("RDMA_INIT_REQUIRE"); way_.variables)
      require = plan.no_require.empty() && set != plan.env.end() ? set->second : "-:" + plan.no_require;
    const Granted granted{.container = call_.container,
                          .owner = who_.owner,
                          .engine = requesting_.caller.engine,
                          .hcas = plan.hcas,
                          .source = requesting_.request->selection.source,
                          .rails = rails,
                          .no_rail = plan.no_rail,
                          .require = std::move(require),
                          .timing = call_.timing};
    call_.log.info(fmt::format("{} {}: {}", event == "booked" ? event : "allocated", some_names(plan),
                               granted_line(event, granted)));
    if (event != "granted") return;
    call_.outcome.granted_mode = mode_of(plan.hcas);
    call_.outcome.engine = requesting_.caller.engine;
  }

  const OpenLedger& open_;
  const ContainerRequest& requesting_;
  const Grantee& who_;
  const Way& way_;
  Call& call_;
};

// The turn of one call for a bundle.
struct Turn {
  base::UniqueFd bundle;
  std::optional<LockFile> file;  // if users other than root can open the bundle
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

Result<void> grant(const OpenLedger& open, const ContainerRequest& requesting, const Grantee& who, const Way& way,
                   Call& call) {
  open.rails->begin_start();
  auto granted = about(FailureReason::kLedger, Granting(open, requesting, who, way, call).carry_out());
  open.report(Releaser::kOther, call);
  return granted;
}

Result<void> grant_in_spec(ContainerRequest& requesting, const ProcessIdentity& requester, Call& call,
                           const Publish& publish) {
  GrantUser user{.key = {}, .id = call.container, .process = requester, .bundle = call.bundle, .state = call.state};
  const auto place = call.state ? std::optional(root_name(*call.state)) : std::nullopt;
  const Grantee who = TRY(grantee_of(requesting.spec, std::move(user), place));
  const OpenLedger& open = *TRY(OpenLedger::keep(call));
  Turn turn;
  // With call.state the bundle needs no lock: the user of the grant is the container itself, not a new token for each
  // call, so the ledger refuses the second of two calls for one container.
  if (!call.state) {
    turn = TRY(take_turn(call.bundle, call.node.ledger));
    TRY_VOID(about(FailureReason::kLedger, check_no_other(open.ledger, who.user)));
  }
  const auto write_down = [&](const Plan& plan, const Adjustment& adjustment) -> Result<void> {
    TRY_VOID(about(FailureReason::kInternal, edit_spec(adjustment, *requesting.document, memlock_of(0))));
    TRY_VOID(about(FailureReason::kState, publish(plan, *requesting.document)));
    call.timing.step("edit");
    return {};
  };
  return grant(open, requesting, who,
               {.event = call.state ? "granted" : "booked", .variables = true, .apply = write_down}, call);
}

}  // namespace hook
