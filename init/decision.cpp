#include "init/decision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fabric/text.hpp"
#include "init/choice.hpp"
#include "init/explain.hpp"
#include "init/gid_index.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::printable;

constexpr unsigned kIpv4Bits = 96;  // in front of an IPv4 address, as Cidr::prefix counts
constexpr std::array<std::string_view, 3> kIndexNames = {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX",
                                                         "NVSHMEM_IB_GID_INDEX"};

class Decider {
 public:
  Decider(const Inventory& inventory, const Settings& settings, const Policy& policy)
      : inventory_(inventory),
        policy_(policy),
        kept_(settings, policy.override_wrong, policy.exports),
        candidates_(find_candidates(inventory, policy.gids)) {}

  // The order of the calls is part of the decision. A kept NCCL_IB_HCA is checked before the choice, which it defines
  // unless --override drops it for what is wrong with it. Kept GID indices are checked on the chosen ports, and before
  // plan_gids(), which plans only what they leave open. NCCL's exports follow the plan, which may have dropped ports;
  // the other libraries' name the ports that are left. Defaults for wrong values come after all exports, which may have
  // replaced them; keep_the_rest() tells replaced from kept by what was exported, so it comes behind both.
  Decision run() {
    if (const Setting* off = kept_.find("NCCL_IB_DISABLE"); off && nccl::parse_param(off->value, 0) != 0) {
      decision_.remarks.push_back(fmt::format("NCCL_IB_DISABLE={} ({}): NCCL will not use RDMA", printable(off->value),
                                              printable(off->source)));
    }
    if (const Setting* index = kept_.find(kIndexNames[0]); !index || nccl::parse_index(index->value) < 0) {
      filter_addresses();
    }
    if (const Setting* list = kept_.find("NCCL_IB_HCA")) {
      kept_.keep("NCCL_IB_HCA", check_hca_list(list->value, candidates_, version()));
    }
    choose();
    for (const Candidate& candidate : candidates_)
      decision_.needs_full |= candidate.needs_table;
    if (!choice_.ports.empty()) {
      keep_gid_indices();
      if (kept_.find(kIndexNames[0]) && !kept_.in_effect(kIndexNames[0])) {
        // It gave way, so what is said of addresses counts again.
        filter_addresses();
        choose();
      }
      plan_gids();
      leave_what_nccl_ignores();
      export_nccl();
      export_others();
      neutralize_wrong_values();
      warn_about_ports();
    }
    keep_the_rest();
    if (kept_.writes_for("nccl")) warn_of_older_versions();
    finish();
    return std::move(decision_);
  }

 private:
  const Candidate& at(std::size_t index) const { return candidates_[index]; }

  // What the image says it has, if that counts.
  std::optional<nccl::Version> image_version() const {
    const Setting* image = kept_.find("NCCL_VERSION");
    return image && !policy_.nccl_version ? nccl::parse_version(image->value) : std::nullopt;
  }

  nccl::Version version() const { return policy_.nccl_version.value_or(nccl::kNewest); }

  void put(std::string_view name, std::string value, std::string reason) {
    if (kept_.in_effect(name)) return;
    decision_.notes.push_back(fmt::format("{}={}: {}", name, printable(value), reason));
    decision_.env.emplace_back(name, std::move(value));
  }

  std::optional<fabric::Family> kept_family() const {
    const Setting* family = kept_.find(kGidRuleNames[0]);
    if (!family || (family->value != "AF_INET" && family->value != "AF_INET6")) return std::nullopt;
    return family->value == "AF_INET" ? fabric::Family::kIpv4 : fabric::Family::kIpv6;
  }

  // What is set of the family and the network of addresses is a filter like the options, unless it leaves nothing. A
  // fixed index voids it.
  void filter_addresses() {
    GidFilter filter = policy_.gids;
    const Setting* family = kept_.find(kGidRuleNames[0]);
    if (const auto wanted_family = kept_family()) {
      filter.family = wanted_family;
      if (!narrow(kGidRuleNames[0], filter, !policy_.gids.family || policy_.gids.family == filter.family)) {
        filter.family = policy_.gids.family;
        family = nullptr;
      }
    }
    const Setting* range = kept_.find(kGidRuleNames[1]);
    if (!range) return;
    // Without a family it is that of the range: where IPv6 is chosen, AF_INET6 is exported.
    const bool ipv6 = range->value.find(':') < range->value.find('/');
    const auto rules = nccl::parse_gid_rules(family ? family->value : ipv6 ? "AF_INET6" : "", range->value, "");
    const bool roce = std::any_of(candidates_.begin(), candidates_.end(), [](const Candidate& candidate) {
      return candidate.port->is_ethernet() && candidate.port->is_active();
    });
    kept_.keep(kGidRuleNames[1], check_range(range->value, rules, roce));
    if (!rules.range || rules.range->base.family() != rules.family || !kept_.in_effect(kGidRuleNames[1])) return;
    // All of a family: where the other is chosen NCCL ignores it.
    if (rules.range->prefix == (rules.family == fabric::Family::kIpv4 ? kIpv4Bits : 0U)) return;
    filter.range = rules.range;
    narrow(kGidRuleNames[1], filter, true, &rules);
  }

  // NCCL stays at index 0 where nothing is in the range, and where a GID of the family and of RoCE v2 is there; that
  // may be the port's own.
  void keep_what_nccl_takes(const nccl::GidRules& rules, std::vector<Candidate>& narrowed) {
    for (std::size_t i = 0; i < narrowed.size(); ++i) {
      if (!at(i).usable() || !at(i).port->is_ethernet()) continue;
      const nccl::GidChoice choice = nccl::choose_gid(*at(i).port, rules);
      decision_.needs_full |= !at(i).port->gids_complete;
      const auto is_taken = [&](const UsableGid& gid) {
        return gid.index == choice.index && !choice.uncertain && gid.rank != GidRank::kLinkLocal;
      };
      const auto own = std::find_if(at(i).gids.begin(), at(i).gids.end(), is_taken);
      if (own == at(i).gids.end() || rules.range->contains(own->gid)) continue;
      narrowed[i] = at(i);
      narrowed[i].gids = {*own};
    }
  }

  // Takes the ports that the filter leaves. False: it would leave no address where there is one. rules: with a range.
  bool narrow(std::string_view name, const GidFilter& filter, bool possible, const nccl::GidRules* rules = nullptr) {
    const auto with_address = [](const Candidate& c) { return c.best(GidRank::kIpv4) || c.best(GidRank::kIpv6); };
    auto narrowed = find_candidates(inventory_, filter);
    if (rules) keep_what_nccl_takes(*rules, narrowed);
    const auto had = std::find_if(candidates_.begin(), candidates_.end(), with_address);
    if (had != candidates_.end() && (!possible || std::none_of(narrowed.begin(), narrowed.end(), with_address))) {
      kept_.keep(name, fmt::format("allows no GID of this container: {} has {}", printable(had->name()),
                                   to_string(had->best()->gid)));
      return false;
    }
    std::swap(candidates_, narrowed);
    if (all_.empty()) all_ = std::move(narrowed);
    return true;
  }

  void choose() {
    ChoiceRules rules;
    rules.kept_index = kept_.fixed_index();
    rules.hcas = policy_.hcas;
    if (const Setting* setting = kept_.in_effect("NCCL_IB_HCA")) {
      rules.kept_hcas = nccl::parse_hca_list(setting->value, version());
    }
    choice_ = choose_ports(inventory_, candidates_, rules);
    if (!rules.kept_hcas || choice_.efa) return;
    if (policy_.hcas)
      decision_.remarks.emplace_back("NCCL_IB_HCA is set already and defines the ports, so --hca does not");
    // NCCL uses what the kept list takes, also what does not fit the rest of it.
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].usable() && !choice_.drop_reasons[i].empty() &&
          rules.kept_hcas->matches(candidates_[i].hca->name, candidates_[i].port->number)) {
        kept_.keep("NCCL_IB_HCA", fmt::format("takes {}: {}", list_ports(candidates_, {i}), choice_.drop_reasons[i]));
        // Under --override it gives way, and the choice is made anew.
        if (!kept_.in_effect("NCCL_IB_HCA")) choose();
        return;
      }
    }
  }

  // The GID each chosen RoCE port should use.
  std::vector<WantedGid> wanted() const {
    std::vector<WantedGid> gids;
    for (const std::size_t i : choice_.ports) {
      const UsableGid* best = choice_.rank && !at(i).port->is_infiniband() ? effective_gid(i) : nullptr;
      if (best) gids.push_back({i, &at(i), *best});
    }
    return gids;
  }

  void keep_gid_indices() {
    // What is set of addresses for NCCL narrows no other library's.
    std::vector<const Candidate*> chosen;
    for (const std::size_t i : choice_.ports)
      chosen.push_back(all_.empty() ? &at(i) : &all_[i]);
    for (const std::string_view name : kIndexNames) {
      const Setting* setting = kept_.find(name);
      if (!setting) continue;
      const bool ucx_auto = name.starts_with("UCX_") && setting->value == "auto";
      const long index = ucx_auto                    ? -1
                         : name.starts_with("NCCL_") ? nccl::parse_index(setting->value)
                                                     : nccl::parse_param(setting->value, -1);
      kept_.keep(name, index < 0 ? std::nullopt : check_gid_index(index, chosen, decision_.needs_full, kept_family()));
    }
  }

  nccl::GidRules effective_rules(bool with_kept) const {
    const auto value = [&](std::string_view name) {
      const Setting* setting = with_kept ? kept_.in_effect(name) : nullptr;
      return setting ? std::string_view(setting->value) : std::string_view();
    };
    std::string_view family = value(kGidRuleNames[0]);
    // export_nccl() will say so: left alone, NCCL looks for IPv4.
    if (family.empty() && choice_.rank && *choice_.rank != GidRank::kIpv4) family = "AF_INET6";
    nccl::GidRules rules = nccl::parse_gid_rules(family, value(kGidRuleNames[1]), value(kGidRuleNames[2]));
    rules.version = version();
    return rules;
  }

  void plan_gids() {
    const auto gids = wanted();
    check_gid_rules(gids);
    plan_.index = kept_.fixed_index();
    if (plan_.index || gids.empty()) return;
    const bool may_set_range = !kept_.in_effect(kGidRuleNames[1]);
    if (kept_.in_effect("NCCL_IB_GID_INDEX")) {
      // A kept value of -1 leaves the choice to NCCL. It is wrong where NCCL's choice is, whatever else we set.
      plan_ = plan_nccl_choice(gids, effective_rules(true), may_set_range);
      if (!plan_.wrong.empty()) {
        kept_.keep("NCCL_IB_GID_INDEX", fmt::format("leaves the choice to NCCL, which takes a wrong GID on {}",
                                                    list_ports(candidates_, plan_.wrong)));
        plan_.wrong.clear();
      }
    }
    if (!kept_.in_effect("NCCL_IB_GID_INDEX")) plan_ = plan_index(gids, effective_rules(true), may_set_range);
    decision_.needs_full |= plan_.needs_tables;
    // Only NCCL has the one index for all: without it every port keeps its best GID where no index serves them all.
    if (kept_.writes_for("nccl")) {
      drop_wrong_ports();
    } else if (!plan_.wrong.empty()) {
      plan_.index.reset();
    }
  }

  // Kept NCCL_IB_ADDR_FAMILY, _ADDR_RANGE and _ROCE_VERSION_NUM only matter while NCCL chooses the index by itself.
  void check_gid_rules(const std::vector<WantedGid>& gids) {
    bool any = false;
    for (const std::string_view name : kGidRuleNames) {
      if (!kept_.values().contains(name)) kept_.keep(name, std::nullopt);
      any |= kept_.find(name) != nullptr;
    }
    if (!any || kept_.fixed_index()) return;
    // An index that serves every port will be exported, and NCCL then looks at none of the three.
    const nccl::GidRules rules = effective_rules(true);
    if (!kept_.in_effect("NCCL_IB_GID_INDEX") && share_index(gids, rules.range).others.empty()) return;
    const auto wrong = wrong_ports(gids, rules);
    // What goes wrong without them too is not their fault.
    if (wrong.size() <= wrong_ports(gids, effective_rules(false)).size()) return;
    for (const std::string_view name : kGidRuleNames) {
      if (!kept_.find(name) || kept_.values().find(name)->second.problem) continue;
      kept_.keep(name, fmt::format("leads NCCL to a wrong GID on {}", list_ports(candidates_, wrong)));
    }
  }

  void drop_wrong_ports() {
    if (plan_.wrong.empty()) return;
    const std::string why =
        plan_.index ? fmt::format(
                          "its GID is not at index {}, which the other ports need, and NCCL cannot choose it by "
                          "itself",
                          *plan_.index)
                    : "its GID is not the one NCCL would choose, and no setting makes it so";
    if (kept_.in_effect("NCCL_IB_HCA")) {
      kept_.keep("NCCL_IB_HCA", fmt::format("takes {}: {}", list_ports(candidates_, plan_.wrong), why));
    }
    decision_.warnings.push_back(
        fmt::format("dropped {}: {}; align the GID indices of the rails (rdma-hook) to use all",
                    list_ports(candidates_, plan_.wrong), why));
    if (policy_.strict) {
      refuse(fmt::format("--strict: would drop {}: {}", list_ports(candidates_, plan_.wrong), why),
             "align the GID indices of the rails (rdma-hook), or leave the port out with --hca");
    }
    for (const std::size_t i : plan_.wrong) {
      choice_.drop_reasons[i] = why;
      std::erase(choice_.ports, i);
    }
  }

  void leave_what_nccl_ignores() {
    // The older one takes fewer: 16 before NCCL 2.18.5.
    const nccl::Version oldest = std::min(version(), image_version().value_or(version()));
    const std::size_t limit = nccl::max_ports(oldest);
    if (!kept_.writes_for("nccl") || choice_.ports.size() <= limit) return;
    decision_.warnings.push_back(
        fmt::format("{} ports, but NCCL {} takes {} at most and ignores the rest; choose with --hca",
                    choice_.ports.size(), nccl::to_string(oldest), limit));
    for (std::size_t i = limit; i < choice_.ports.size(); ++i) {
      choice_.drop_reasons[choice_.ports[i]] =
          fmt::format("NCCL {} takes {} ports at most; --hca chooses others", nccl::to_string(oldest), limit);
    }
    choice_.ports.resize(limit);
  }

  std::vector<ChosenPort> chosen_ports() const {
    std::vector<ChosenPort> ports;
    for (const std::size_t i : choice_.ports) {
      ChosenPort port{&at(i), {}};
      if (const UsableGid* gid = effective_gid(i)) {
        port.netdev = gid->netdev;
      } else if (!at(i).netdevs.empty()) {
        // InfiniBand has no such GID. The IPoIB netdev is named for UCX's TCP, so it has to be up with an address.
        const fabric::Netdev* ipoib = fabric::find_netdev(inventory_, at(i).netdevs.front());
        if (ipoib && ipoib->is_up() && !ipoib->addresses.empty()) port.netdev = ipoib->name;
      }
      ports.push_back(std::move(port));
    }
    return ports;
  }

  // The GID a chosen port will use: at the one index for all if there is one, kept or planned, else the best.
  const UsableGid* effective_gid(std::size_t i) const {
    if (at(i).port->is_infiniband() || !choice_.rank) return nullptr;
    const auto moved = plan_.moved.find(i);
    if (plan_.index || moved != plan_.moved.end()) {
      const unsigned index = plan_.index ? *plan_.index : moved->second;
      const auto& gids = at(i).gids;
      const auto found =
          std::find_if(gids.begin(), gids.end(), [&](const UsableGid& gid) { return gid.index == index; });
      if (found != gids.end()) return &*found;
    }
    return at(i).best(*choice_.rank);
  }

  bool is_ipv6() const { return choice_.rank && *choice_.rank != GidRank::kIpv4; }

  void export_nccl() {
    if (!kept_.writes_for("nccl")) return;
    put("NCCL_IB_HCA", nccl_hca_value(chosen_ports()),
        fmt::format("{} port{} chosen; `=` makes the names exact", choice_.ports.size(),
                    choice_.ports.size() == 1 ? "" : "s"));
    if (plan_.index) {
      put("NCCL_IB_GID_INDEX", std::to_string(*plan_.index), "every port has its address at this index");
    }
    if (is_ipv6()) put(kGidRuleNames[0], "AF_INET6", "the chosen addresses are IPv6");
    if (plan_.range) {
      put(kGidRuleNames[1], to_string(*plan_.range), "NCCL would choose a GID of another network namespace without it");
    }
    check_versions();
  }

  // Exports must be right for the NCCL that the image says it has, too.
  void check_versions() {
    const auto gids = wanted();
    if (gids.empty() || plan_.index) return;  // every version takes a fixed index as it is
    warn_about_difference(gids);
    const auto image = image_version();
    if (!image) return;
    nccl::GidRules rules = effective_rules(true);
    if (plan_.range) rules.range = plan_.range;
    rules.version = *image;
    decision_.needs_full |= needs_whole_tables(gids, rules.version);
    const auto wrong = wrong_ports(gids, rules);
    if (wrong.empty()) return;
    const char* cause = *image < nccl::kChoosesGid ? "does not choose a GID per port (2.21 and later do)"
                                                   : "does not get over the unreadable GID types (2.26 and later do)";
    decision_.warnings.push_back(fmt::format("NCCL {} (NCCL_VERSION) {}: {} will not connect", nccl::to_string(*image),
                                             cause, list_ports(candidates_, wrong)));
  }

  // What is set is checked as the newest NCCL reads it. Which one there is, is often not known.
  void warn_of_older_versions() {
    const auto known = policy_.nccl_version ? policy_.nccl_version : image_version();
    const auto may_be_before = [&](const nccl::Version& version) { return !known || *known < version; };
    const auto warn = [&](std::string_view name, std::string_view what) {
      decision_.warnings.push_back(fmt::format("{}={}: {}", name, printable(kept_.find(name)->value), what));
    };
    const Setting* list = kept_.in_effect("NCCL_IB_HCA");
    if (list && may_be_before(nccl::kEmptyPortIsAny) && nccl::has_empty_port(list->value)) {
      warn("NCCL_IB_HCA", "NCCL before 2.30.5 reads an empty port as 0, which no HCA has");
    }
    if (kept_.in_effect(kIndexNames[0])) warn_of_older_index(may_be_before, warn);
    if (kept_.find("NCCL_CONF_FILE") && may_be_before(nccl::kConfFile)) {
      warn("NCCL_CONF_FILE", "NCCL before 2.23 does not know it, and reads ~/.nccl.conf");
    }
    const auto with_cr = kept_.find_cr();
    if (!with_cr.empty() && may_be_before(nccl::kTrimsCr)) {
      decision_.warnings.push_back(
          fmt::format("{} ({}): the line ends with CR LF, and NCCL before 2.30 takes the CR for a "
                      "part of the value; `sed -i 's/\\r$//'` removes it",
                      printable(with_cr), printable(kept_.find(with_cr)->source)));
    }
  }

  template <typename MayBeBefore, typename Warn>
  void warn_of_older_index(const MayBeBefore& may_be_before, const Warn& warn) {
    const auto index = kept_.fixed_index();
    if (!index) {
      if (!agreed_index()) return;  // warn_about_difference() says it
      std::vector<const Candidate*> chosen;
      for (const WantedGid& one : wanted())
        chosen.push_back(one.candidate);
      const auto wrong = check_gid_index(0, chosen, decision_.needs_full);
      if (wrong && may_be_before(nccl::kChoosesGid)) {
        warn(kIndexNames[0], fmt::format("NCCL before 2.21 takes index 0, and {}", *wrong));
      }
      return;
    }
    if (!may_be_before(nccl::kIgnoresIndexOnInfiniband)) return;
    for (const std::size_t i : choice_.ports) {
      if (!at(i).port->is_infiniband()) continue;
      const auto length = at(i).port->gid_tbl_len;
      decision_.needs_full |= !length;
      if (!length || *index < *length) continue;
      warn(kIndexNames[0],
           fmt::format("{} has {} GIDs, and NCCL before 2.22 does not connect over an InfiniBand port that "
                       "does not have this one",
                       printable(at(i).name()), *length));
      return;
    }
  }

  void warn_about_difference(const std::vector<WantedGid>& gids) {
    std::vector<std::string> indices;
    bool differ = false;
    for (const WantedGid& one : gids) {
      indices.push_back(fmt::format("{} {}", printable(one.candidate->name()), one.gid.index));
      differ |= one.gid.index != gids.front().gid.index;
    }
    if (!differ) return;
    decision_.warnings.push_back(fmt::format(
        "NCCL_IB_GID_INDEX is left unset because the ports differ ({}); NCCL 2.21 and later choose right per port{}",
        fabric::join(indices, ", "), plan_.range ? " with the exported NCCL_IB_ADDR_RANGE" : ""));
  }

  void export_others() {
    ExportInput input;
    input.ports = chosen_ports();
    input.index = agreed_index();
    input.ipv6 = is_ipv6();
    if (const fabric::Netdev* netdev = fabric::default_route_netdev(inventory_)) input.default_netdev = netdev->name;
    for (const std::string& library : policy_.exports) {
      for (auto& [name, value] : library_variables(library, input)) {
        put(name, std::move(value), fmt::format("the same choice for {}", library));
      }
    }
  }

  bool is_exported(std::string_view name) const {
    return std::any_of(decision_.env.begin(), decision_.env.end(),
                       [&](const auto& variable) { return variable.first == name; });
  }

  void neutralize_wrong_values() {
    for (const auto& [name, kept] : kept_.values()) {
      if (!kept.problem || !kept_.may_replace(name) || is_exported(name)) continue;
      const Setting* family = name == kGidRuleNames[0] ? nullptr : kept_.in_effect(kGidRuleNames[0]);
      std::string value = neutral_value(name, is_ipv6() || (family && family->value == "AF_INET6"));
      if (!value.empty()) put(name, std::move(value), "the default instead of a wrong value");
    }
  }

  // The index at which every chosen port has its own GID, whether a kept value or the plan fixed it; nullopt when the
  // ports differ or need none.
  std::optional<unsigned> agreed_index() const {
    std::optional<unsigned> index;
    for (const std::size_t i : choice_.ports) {
      const UsableGid* gid = effective_gid(i);
      if (!gid || (index && *index != gid->index)) return std::nullopt;
      index = gid->index;
    }
    return index;
  }

  void warn_about_ports() {
    for (std::string& warning : choice_.warnings)
      decision_.warnings.push_back(std::move(warning));
    if (choice_.rank == GidRank::kLinkLocal) {
      decision_.warnings.push_back(
          "only link-local GIDs: works inside one subnet at best; give the ports IPv4 or global IPv6 addresses");
    }
    warn_about_node_gids();
    const bool software = std::any_of(choice_.ports.begin(), choice_.ports.end(),
                                      [&](std::size_t i) { return at(i).hca->is_software(); });
    if (software) decision_.warnings.push_back("software RDMA (rxe or siw) is used: functional, but slow");
  }

  void warn_about_node_gids() {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> uses;
    for (const std::size_t i : choice_.ports) {
      const UsableGid* gid = effective_gid(i);
      if (gid && gid->netdev.empty()) uses.push_back(fmt::format("{} (index {})", to_string(gid->gid), gid->index));
    }
    if (uses.empty()) return;
    if (uses.size() > kShown) {
      uses[kShown] = fmt::format("and {} more", uses.size() - kShown);
      uses.resize(kShown + 1);
    }
    decision_.warnings.push_back(
        fmt::format("uses the node's address{} {}: RDMA_CM does not work here, all containers of this node share {}",
                    uses.size() == 1 ? "" : "es", fabric::join(uses, ", "), uses.size() == 1 ? "it" : "them"));
  }

  void keep_the_rest() {
    kept_.keep_related();
    for (const auto& [name, value] : kept_.values()) {
      const std::string text =
          fmt::format("{}={} ({})", printable(name), printable(value.value), printable(value.source));
      if (value.problem && is_exported(name)) {
        decision_.notes.push_back(fmt::format("{} was replaced: {}", text, *value.problem));
        continue;
      }
      decision_.kept.emplace(name, value);
      if (!value.problem) continue;
      const char* outlook = policy_.override_wrong ? "there is nothing to replace it with" : "--override replaces it";
      decision_.warnings.push_back(fmt::format("{}: {}; kept, {}", text, *value.problem, outlook));
      if (policy_.strict) {
        refuse(fmt::format("--strict: {}: {}", text, *value.problem),
               fmt::format("correct or unset {}", printable(name)));
      }
    }
  }

  void finish() {
    decision_.usable_hcas = count_usable_hcas(candidates_);
    report_ports();
    if (choice_.ports.empty()) {
      decision_.status = Status::kNone;
      decision_.efa = choice_.efa;
      Cause cause = explain_none(inventory_, candidates_, choice_, policy_.hcas);
      decision_.summary = std::move(cause.reason);
      decision_.remedy = std::move(cause.remedy);
      decision_.asides = std::exchange(decision_.warnings, {});
      decision_.env.clear();  // also what was put before the last port was dropped
      if (choice_.efa && kept_.writes_for("libfabric")) put("FI_PROVIDER", "efa", "the fabric of this machine");
    } else {
      decision_.status = decision_.warnings.empty() ? Status::kOk : Status::kOkWarn;
      summarize();
    }
    // In place of a refusal of --strict, which is about ports that are there.
    if (decision_.usable_hcas < policy_.require) {
      Cause cause = explain_missing(inventory_, candidates_);
      if (cause.reason.empty()) {
        cause = {"there are no other HCAs in this container", "give the container more HCAs, or lower --require"};
      }
      decision_.refusal = fmt::format("--require {}: only {} HCA{} with a usable port: {}", policy_.require,
                                      decision_.usable_hcas, decision_.usable_hcas == 1 ? "" : "s", cause.reason);
      decision_.refusal_remedy = std::move(cause.remedy);
    }
  }

  // The first refusal stands.
  void refuse(std::string why, std::string remedy) {
    if (decision_.refusal) return;
    decision_.refusal = std::move(why);
    decision_.refusal_remedy = std::move(remedy);
  }

  void report_ports() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const bool used = std::find(choice_.ports.begin(), choice_.ports.end(), i) != choice_.ports.end();
      decision_.ports.push_back(used ? report_used(at(i), effective_gid(i))
                                     : report_unused(at(i), choice_.drop_reasons[i]));
    }
  }

  void summarize() {
    const Candidate& first = at(choice_.ports.front());
    std::string gids;
    if (choice_.rank) {
      const auto index = agreed_index();
      const auto fixed = kept_.fixed_index();
      gids = fixed   ? fmt::format(", GID index {} (set already)", *fixed)
             : index ? fmt::format(", GID index {} ({})", *index, rank_name(*choice_.rank))
                     : fmt::format(", GID index per port ({})", rank_name(*choice_.rank));
    }
    decision_.summary = fmt::format("{} of {} ports: {} {} Gb/s{}: {}", choice_.ports.size(), candidates_.size(),
                                    first.port->is_infiniband() ? "InfiniBand" : "RoCE", first.rate(), gids,
                                    list_ports(candidates_, choice_.ports));
  }

  const Inventory& inventory_;
  const Policy& policy_;
  Kept kept_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> all_;  // before these were narrowed by what is set; empty: they were not
  Choice choice_;
  IndexPlan plan_;
  Decision decision_;
};

}  // namespace

Decision decide(const Inventory& inventory, const Settings& settings, const Policy& policy) {
  return Decider(inventory, settings, policy).run();
}

std::string_view status_name(Status status) {
  return status == Status::kOk ? "ok" : status == Status::kOkWarn ? "ok_warn" : "none";
}

}  // namespace init
