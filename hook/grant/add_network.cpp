#include "hook/grant/add_network.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/failure.hpp"
#include "base/result.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/add.hpp"

namespace hook {

namespace {

// Returns true if no other container uses this grant. Only then may GIDs still move to other indices, because a running
// container uses the present indices.
Result<bool> is_first(const Ledger& ledger, const Owner& owner, const std::string& user) {
  const auto grant = TRY(ledger.find(owner.key));
  return !grant || std::all_of(grant->users.begin(), grant->users.end(),
                               [&](const GrantUser& other) { return other.key == user; });
}

Result<void> give(const ContainerRequest& requesting, const Grantee& who, const NetworkTarget& target,
                  const fabric::Inventory& inventory, const Ledger& ledger, Call& call, Plan& plan) {
  const std::string& path = target.netns_path;
  // add_rails() enters the namespace by this descriptor, so it is the namespace to which the path leads now.
  base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "cannot open the container's network namespace `{}`", path);
  NetnsIdentity netns = TRY(identify_netns(path));
  const bool first = TRY(is_first(ledger, who.owner, who.user.key));
  RailsInput input{.plan = plan,
                   .config = requesting.admin,
                   .inventory = inventory,
                   .ledger = ledger,
                   .ledger_directory = call.node.ledger,
                   .sys = call.node.root + "/sys",
                   .owner = who.owner,
                   .netns = std::move(netns),
                   .netns_fd = std::move(fd),
                   .ipam = call.ipam,
                   .pod = pod_identity(requesting.spec, requesting.caller.engine),
                   .before_first_start = first,
                   .hurried = target.hurried};
  const auto report = TRY(add_rails(std::move(input), call.timing));
  call.log.warnings(report.warnings);
  if (!report.alignment.empty()) call.log.info(report.alignment);
  renumber(inventory, report.nodes, plan);
  return {};
}

}  // namespace

Result<void> add_network(const ContainerRequest& requesting, const Grantee& who, const NetworkTarget& target,
                         const fabric::Inventory& inventory, const Ledger& ledger, Call& call, Plan& plan) {
  if (plan.netdevs.empty()) return {};
  return about(FailureReason::kNetwork, give(requesting, who, target, inventory, ledger, call, plan));
}

}  // namespace hook
