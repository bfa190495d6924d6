#include "hook/grant/claims_of.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.hpp"
#include "fabric/inventory.hpp"
#include "fabric/read_node.hpp"
#include "hook/grant/hcas.hpp"

namespace hook {
namespace {

using base::split_first;

// Returns the UID of the claim of a variable; "": it is no variable of a claim. prefix: that of such variables.
std::string uid_of_variable(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  std::string uid(name.substr(prefix.size()));
  for (char& c : uid)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return uid;
}

// Returns the present names of HCAs of a claim. An HCA that moved to a pod's network namespace has its recorded name.
std::vector<std::string> names_now(const std::vector<ClaimHca>& hcas, const std::string& root) {
  std::vector<std::string> names;
  for (const ClaimHca& hca : hcas)
    names.push_back(hca.name);
  KnownDevices known = devices_of(names, {}, root);
  const auto is_it = [&](const std::string& name, const ClaimHca& hca) {
    const std::string* const device = known.booked_under(name);
    return device && *device == hca.device;
  };
  bool are_all = true;
  for (std::size_t i = 0; i < hcas.size(); ++i)
    are_all = are_all && (known.unknown.contains(names[i]) || is_it(names[i], hcas[i]));
  if (are_all) return names;
  // An HCA was renamed: its device is searched among all HCAs of the node.
  const auto all = fabric::survey_node(root, fabric::kNameOnly, false);
  std::vector<std::string> every;
  for (const fabric::Hca& hca : all.hcas)
    every.push_back(hca.name);
  known = devices_of(every, {}, root);
  for (std::size_t i = 0; i < hcas.size(); ++i) {
    const auto now = std::ranges::find_if(every, [&](const std::string& name) { return is_it(name, hcas[i]); });
    if (now != every.end()) names[i] = *now;
  }
  return names;
}

bool is_none(const Request& request) {
  return request.selection.kind == HcaSelection::Kind::kNone;
}

// Removes the nodes of HCAs that the container has for monitoring only. granted: HCAs that it has also by another
// claim.
void remove_monitored(const std::vector<PlannedHca>& monitored, const std::vector<PlannedHca>& granted,
                      const std::string& root, Request& request) {
  const auto is_monitored = [&](const SpecDevice& device) {
    const auto number = device.uverbs();
    return number && find_by_node(monitored, root, *number) && !find_by_node(granted, root, *number);
  };
  if (std::erase_if(request.granted_nodes, is_monitored) == 0 || !request.granted_nodes.empty() ||
      !request.has_nodes_of_grant)
    return;
  // Without nodes, a request for the HCAs of the nodes would select all HCAs.
  request.has_nodes_of_grant = false;
  request.selection.kind = HcaSelection::Kind::kNone;
}

// Checks that the container may use the claim whose variable it has. Another pod that has learnt the value of the
// variable can set it. The kubelet prepares a claim once, also for pods that share it later, so the record lacks those:
// a runtime has then added the device nodes of the claim together with the variable.
Result<void> check_pod(const ContainerRequest& requesting, const Grant& grant, const std::string& root) {
  const std::string pod = pod_identity(requesting.spec, requesting.caller.engine).pod_uid;
  const auto& [space, name, token, pods, claimed] = *grant.owner.claim;
  if (pod.empty() || pods.empty() || std::ranges::find(pods, pod) != pods.end()) return {};
  std::vector<PlannedHca> hcas(claimed.size());
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    hcas[i].name = claimed[i].name;
    hcas[i].device = claimed[i].device;
  }
  const auto is_claimed = [&](const SpecDevice& device) {
    const auto number = device.uverbs();
    return number && find_by_node(hcas, root, *number);
  };
  if (std::ranges::any_of(requesting.spec.devices, is_claimed)) return {};
  return Error{fmt::format("{} is not reserved for pod `{}`, of which a container has the claim's variable",
                           grant.owner.label, base::printable(pod)),
               0, "remove the variable from the pod, and name the claim in its \"resourceClaims\"",
               FailureReason::kRefused};
}

}  // namespace

Result<std::vector<Grant>> claims_of(const ContainerRequest& requesting, const Ledger& ledger,
                                     const std::string& root) {
  std::vector<Grant> claims;
  const std::string prefix = claim_variable("");
  std::size_t read = 0;
  const auto& env = requesting.spec.env;
  for (auto entry = env.rbegin(); entry != env.rend() && read < kMostClaims; ++entry) {
    const auto [name, value] = split_first(*entry, '=');
    const std::string uid = uid_of_variable(name, prefix);
    if (uid.empty()) continue;
    ++read;
    auto grant = TRY(ledger.find(claim_owner(uid, {}).key));
    if (!grant || !grant->owner.claim || grant->owner.claim->token != value) continue;
    TRY_VOID(check_pod(requesting, *grant, root));
    claims.push_back(*std::move(grant));
  }
  return claims;
}

Result<std::vector<Grant>> claims_of_pod(std::string_view uid, const Ledger& ledger) {
  auto claims = TRY(ledger.find_by_id(uid));
  std::erase_if(claims, [](const Grant& grant) { return !grant.owner.claim || grant.pending; });
  return claims;
}

void join_claims(const std::vector<Grant>& claims, const std::string& root, Owner& owner, Request& request) {
  std::vector<PlannedHca> monitored;
  std::vector<PlannedHca> granted;
  for (const Grant& grant : claims) {
    owner.claims.push_back(grant.owner.key);
    const auto& hcas = grant.owner.claim->hcas;
    const auto names = names_now(hcas, root);
    for (std::size_t i = 0; i < hcas.size(); ++i) {
      PlannedHca hca;
      hca.name = names[i];
      hca.device = hcas[i].device;
      if (hcas[i].is_admin) {
        monitored.push_back(std::move(hca));
        continue;
      }
      const PlannedHca* const held = find_hca(grant.hcas, hcas[i].device);
      ClaimTerms& terms = request.claimed[hca.name];
      if (held) terms.mode = held->mode;
      if (held) hca.units = held->units;
      if (!hcas[i].network.empty()) terms.network = hcas[i].network;
      terms.limits = hcas[i].limits;
      granted.push_back(std::move(hca));
    }
  }
  if (!monitored.empty()) remove_monitored(monitored, granted, root, request);
  if (!is_none(request) || !request.granted_nodes.empty() || granted.empty()) return;
  request.selection = {.kind = HcaSelection::Kind::kList, .source = claims.front().owner.label};
  auto& selectors = request.selection.selectors.selectors;
  for (const PlannedHca& hca : granted)
    selectors.insert(selectors.end(), hca.units, {.pattern = hca.name, .port = {}});  // a child netdev for each unit
}

}  // namespace hook
