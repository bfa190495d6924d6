#include "init/kept.hpp"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/text.hpp"

namespace init {
namespace {

// Libraries with checked variables, by prefix of the variables.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPrefixes = {
    {{"NCCL_", "nccl"}, {"UCX_", "ucx"}, {"NVSHMEM_", "nvshmem"}}};

// The signs before a list of NCCL_IB_HCA: exclude, exact.
constexpr std::string_view kSigns = "^= \t";

// Returns true for variables that affect the choice. The report has such variables even if no check covers them.
bool is_related(std::string_view name) {
  constexpr std::array<std::string_view, 9> kNames = {
      "NCCL_NET", "NCCL_NET_PLUGIN",  "NCCL_ENV_PLUGIN",    "NCCL_SOCKET_IFNAME", "UCX_NET_DEVICES",
      "UCX_TLS",  "NVSHMEM_HCA_LIST", "GLOO_SOCKET_IFNAME", "MSCCLPP_HCA_DEVICES"};
  return name.starts_with("NCCL_IB_") || name.ends_with("_GID_INDEX") ||
         std::ranges::find(kNames, name) != kNames.end();
}

// Returns true if NCCL uses the port: NCCL only requires that the device opens, and an ACTIVE port with a known link
// layer.
bool visible_to_nccl(const Candidate& candidate) {
  return candidate.hca->is_accessible() && !candidate.hca->is_rejected() && candidate.port->is_active() &&
         (candidate.port->is_infiniband() || candidate.port->is_ethernet());
}

bool names_device(const nccl::HcaList::Entry& entry, const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates, [&](const Candidate& c) { return c.hca->name == entry.name; });
}

// Returns the devices that an entry selects only because NCCL compares prefixes: mlx5_1 also selects mlx5_10.
std::vector<std::string> meant_by_prefix_only(const nccl::HcaList& list, const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  if (list.exact) return names;
  const auto named = [&](std::string_view hca) {
    return std::ranges::find(list.entries, hca, &nccl::HcaList::Entry::name) != list.entries.end();
  };
  for (const auto& entry : list.entries) {
    // An entry that names no device, such as `mlx5`, was meant as a prefix.
    if (!names_device(entry, candidates)) continue;
    for (const Candidate& candidate : candidates) {
      const std::string& hca = candidate.hca->name;
      if (!visible_to_nccl(candidate) || !hca.starts_with(entry.name) || named(hca)) continue;
      if (std::ranges::find(names, hca) == names.end()) names.push_back(hca);
    }
  }
  return names;
}

// Returns the problem of an entry that matches no port of any machine: with a sign, blanks or port 0. An entry for a
// port that only this machine lacks is no problem: one list often serves a complete job, and the entry may be right on
// another machine.
std::optional<Problem> useless_entry(const nccl::HcaList& list, const std::vector<Candidate>& candidates) {
  for (const auto& entry : list.entries) {
    if (entry.name.find_first_of("^=*?[") != std::string::npos && !names_device(entry, candidates)) {
      return Problem{
          fmt::format("has the entry `{}`, which matches nothing: NCCL reads `^` and `=` only at the beginning of "
                      "the list, and no patterns",
                      base::printable(entry.name)),
          Verdict::kSlow};
    }
    if (entry.port == 0 || base::trim(entry.name) != entry.name) {
      return Problem{
          fmt::format("has the entry `{}{}`, which matches nothing: {}", base::printable(entry.name),
                      entry.port == 0 ? ":0" : "", entry.port == 0 ? "ports count from 1" : "NCCL trims no blanks"),
          Verdict::kSlow};
    }
  }
  return std::nullopt;
}

// Returns the content of a GID slot for a message.
std::string describe_slot(const Candidate& candidate, long index) {
  const auto entry = std::ranges::find(candidate.port->gids, index, &fabric::GidEntry::index);
  if (entry == candidate.port->gids.end()) return "empty";
  const auto* type = entry->type ? std::get_if<std::string>(&*entry->type) : nullptr;
  return fmt::format("{} ({})", to_string(entry->gid), type ? base::printable(*type) : "type unreadable");
}

}  // namespace

std::optional<Problem> check_hca_list(std::string_view value, const std::vector<Candidate>& candidates,
                                      const nccl::Version& version) {
  // Only the gravest problem is returned, in this order: no port works, more ports are selected than intended, an entry
  // has no effect, a port fails.
  const nccl::HcaList list = nccl::parse_hca_list(value, version);
  std::size_t usable = 0;
  std::size_t selected = 0;
  const Candidate* broken = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!list.matches(candidate.hca->name, candidate.port->number)) continue;
    ++selected;
    if (candidate.usable()) ++usable;
    if (!candidate.usable() && visible_to_nccl(candidate) && !broken) broken = &candidate;
  }
  if (selected == 0) {
    // The caller reports a CR at the end, which no user sees as a blank.
    auto problem = useless_entry(list, candidates);
    return Problem{problem && !value.ends_with('\r') ? std::move(problem->text) : "selects no port of this machine",
                   Verdict::kBad};
  }
  if (usable == 0) return Problem{"selects no usable port", Verdict::kBad};
  if (const auto extra = meant_by_prefix_only(list, candidates); !extra.empty()) {
    return Problem{fmt::format("also {} {}, because NCCL compares prefixes; begin the value with `{}`",
                               list.exclude ? "excludes" : "selects", base::printable(base::join(extra, ", ")),
                               list.exclude ? "^=" : "=")};
  }
  if (auto problem = useless_entry(list, candidates)) return problem;
  if (broken) {
    // NCCL uses the port with a GID that cannot work, unless the GID is of RoCE v1 or not known.
    const Obstacle why = broken->obstacle;
    const bool fails = why == Obstacle::kNoNetdev || why == Obstacle::kForeign || why == Obstacle::kNetdevDown ||
                       why == Obstacle::kIndexTooHigh;
    return Problem{fmt::format("selects {}, which cannot be used: {}", base::printable(broken->name()), broken->reason),
                   fails ? Verdict::kBad : Verdict::kNote};
  }
  return std::nullopt;
}

nccl::HcaList meaning_of(std::string_view value, const std::vector<Candidate>& candidates) {
  // The signs are accepted in any order and after blanks.
  value = base::trim(value);
  const std::string_view signs = value.substr(0, std::min(value.find_first_not_of(kSigns), value.size()));
  value.remove_prefix(signs.size());
  nccl::HcaList meaning;
  meaning.exclude = signs.find('^') != std::string_view::npos;
  meaning.exact = signs.find('=') != std::string_view::npos;
  for (const std::string_view part : base::split(value, ',')) {
    // One entry at a time, because NCCL ignores the entries after the 32nd.
    nccl::HcaList one = nccl::parse_hca_list(base::trim(part));
    // If an entry after the first excludes and the list includes, the entry means no HCA.
    if (one.exclude && !meaning.exclude) continue;
    for (auto& entry : one.entries) {
      entry.name = base::trim(entry.name);
      if (entry.port < 1) entry.port = -1;
      entry.is_prefix = !meaning.exact && !names_device(entry, candidates);
      meaning.entries.push_back(std::move(entry));
    }
  }
  // Adds an entry that matches nothing, because a list without entries would select every HCA.
  if (meaning.entries.empty() && !meaning.exclude && !value.empty()) meaning.entries.emplace_back();
  return meaning;
}

std::optional<long> parse_ucx_index(const std::string& value) {
  if (::strcasecmp(value.c_str(), "auto") == 0) return -1;
  if (::strcasecmp(value.c_str(), "inf") == 0) return kHighestUcxIndex;
  char* end = nullptr;
  const unsigned long number = std::strtoul(value.c_str(), &end, 10);
  if (end == value.c_str()) return std::nullopt;
  constexpr unsigned long kAuto = std::numeric_limits<unsigned long>::max() - 1;  // UCS_ULUNITS_AUTO
  if (number == kAuto) return -1;
  return static_cast<long>(std::min<unsigned long>(number, kHighestUcxIndex));
}

std::optional<Problem> check_gid_index(long index, const std::vector<const Candidate*>& ports, bool& unknown) {
  for (const Candidate* candidate : ports) {
    if (candidate->port->is_infiniband()) continue;
    if (index >= long{fabric::kUsableGids}) {
      return Problem{fmt::format("is above {}, and a queue pair cannot use it", fabric::kUsableGids - 1),
                     Verdict::kBad};
    }
    const auto right = std::ranges::find(candidate->gids, index, &UsableGid::index);
    if (right != candidate->gids.end()) {
      const UsableGid* best = candidate->best();
      if (right->rank != GidRank::kLinkLocal || best->rank == GidRank::kLinkLocal) continue;
      return Problem{fmt::format("GID {} of {} is link-local, though it has {} at {}", index,
                                 base::printable(candidate->name()), to_string(best->gid), best->index)};
    }
    // The table was read only up to the last GID of this namespace, and the slot may be after it.
    if (!candidate->port->gids_complete) {
      unknown = true;
      continue;
    }
    // A queue pair with an empty slot or with a GID of another network namespace certainly fails. A GID of RoCE v1
    // works inside one subnet, and a GID without a readable type is not known.
    const auto slot = std::ranges::find(candidate->port->gids, index, &fabric::GidEntry::index);
    const bool fails = slot == candidate->port->gids.end() || slot->is_v2();
    return Problem{fmt::format("GID {} of {} is {}, not a RoCE v2 address of this network namespace", index,
                               base::printable(candidate->name()), describe_slot(*candidate, index)),
                   fails ? Verdict::kBad : Verdict::kNote};
  }
  return std::nullopt;
}

std::optional<std::string> check_range(std::string_view value, const nccl::GidRules& rules, bool roce) {
  const std::size_t slash = value.find('/');
  if (slash == std::string_view::npos) {
    return roce ? "has no `/`: NCCL ignores it, and 2.21.5 and 2.22.3 crash"
                : "has no `/`: NCCL ignores it, and 2.21.5 crashes, also over InfiniBand";
  }
  if (rules.nothing_in_range) return "has a negative length: NCCL finds no GID in it";
  if (!rules.range) {
    return fmt::format("is not a network of {}, so NCCL ignores it",
                       rules.family == fabric::Family::kIpv4 ? "AF_INET" : "AF_INET6");
  }
  if (rules.family == fabric::Family::kIpv6 && rules.range->base.is_ipv4()) {
    return "is an IPv4 network in IPv6 form, and no GID of AF_INET6 is in it; write it as IPv4, for AF_INET";
  }
  const std::string_view length = base::trim(value.substr(slash + 1));
  // NCCL reads the length with strtol(), which stops at the first other character: "24,10.0.0.0/8" is 24.
  const std::size_t end = length.find_first_not_of("0123456789");
  if (length.empty() || end != std::string_view::npos) {
    return fmt::format("means {} to NCCL, which reads one network and ignores `{}`", to_string(*rules.range),
                       base::printable(length.substr(std::min(end, length.size()))));
  }
  return std::nullopt;
}

std::span<const Number> numbers() {
  static constexpr Number kNumbers[] = {{"NCCL_IB_TIMEOUT", 0, 31, 5, nullptr},
                                        {"NCCL_IB_RETRY_CNT", 0, 7, 3, "7"},
                                        {"NCCL_IB_QPS_PER_CONNECTION", 1, 128, 0, "1"},
                                        {"NCCL_IB_TC", -1, 255, 8, "0"},
                                        {"NCCL_IB_FIFO_TC", -1, 255, 8, "0"},
                                        {"NCCL_IB_SL", -1, 15, 4, "0"},
                                        {"NCCL_IB_SUBNET_PREFIX_LEN", 1, 32, 0, "24"},
                                        {"NVSHMEM_IB_TRAFFIC_CLASS", 0, 255, 8, "0"},
                                        {"NVSHMEM_IB_SL", 0, 15, 4, "0"},
                                        {"UCX_IB_TRAFFIC_CLASS", 0, 255, 8, "auto"},
                                        {"UCX_IB_SL", 0, 15, 4, "auto"}};
  return kNumbers;
}

const Number* find_number(std::string_view variable) {
  const auto found = std::ranges::find(numbers(), variable, &Number::name);
  return found == numbers().end() ? nullptr : &*found;
}

std::optional<Problem> check_number(const Number& number, std::string_view value,
                                    const std::optional<nccl::Version>& named) {
  constexpr unsigned char kByte = 8;  // the libraries store all of these numbers but counts and lengths in a byte
  if (number.fallback && value == number.fallback) return std::nullopt;
  if (value.find_first_of("0123456789") == std::string_view::npos) {
    return number.lowest > 0
               ? Problem{"is no number, and with 0, as which it is read, no connection works", Verdict::kBad}
               : Problem{"is no number, and is read as 0"};
  }
  const long read = nccl::parse_param(value, number.lowest);
  if (read == -1 && number.lowest == -1) {
    if (!named || *named >= nccl::kMinusOneIsDefault) return std::nullopt;
    return Problem{"NCCL before 2.26 uses 255 for -1"};
  }
  const unsigned byte = static_cast<std::uint8_t>(read);
  const long arriving = number.bits != 0 && number.bits < kByte ? long{byte} : read;
  if (arriving >= number.lowest && arriving <= number.highest) return std::nullopt;
  const std::string range = fmt::format("{} to {} is the range", number.lowest, number.highest);
  if (number.bits == 0) return Problem{fmt::format("{}, and with {} no connection works", range, read), Verdict::kBad};
  const unsigned kept = byte & ((1U << number.bits) - 1);
  return Problem{number.bits == kByte
                     ? fmt::format("{}: only 8 bits of it are sent, {}", range, kept)
                     : fmt::format("{}: mlx5 keeps {} bits, so that {} is {}, and other drivers may refuse it", range,
                                   +number.bits, byte, kept)};
}

std::string neutral_value(std::string_view name, bool ipv6, const nccl::Version& version) {
  if (name == "NCCL_IB_GID_INDEX" && version < nccl::kChoosesGid) return "0";
  if (name == "NCCL_IB_GID_INDEX" || name == "NVSHMEM_IB_GID_INDEX") return "-1";
  if (name == "UCX_IB_GID_INDEX") return "auto";
  if (name == kGidRuleNames[0]) return ipv6 ? "AF_INET6" : "AF_INET";
  if (name == kGidRuleNames[1]) return ipv6 ? "::/0" : "0.0.0.0/0";
  if (name == kGidRuleNames[2]) return "2";
  const Number* number = find_number(name);
  if (!number) return {};
  if (number->fallback) return number->fallback;
  return version < nccl::kTimeout18 ? "14" : version < nccl::kTimeout20 ? "18" : "20";
}

void Kept::keep(std::string_view name, std::optional<Problem> problem, std::string_view cause) {
  const Setting* setting = find(name);
  if (!setting || is_wrong(name)) return;
  if (problem && setting->had_cr && setting->value.ends_with('\r') && problem->text != kCrLf)
    problem->text += fmt::format(": {}", kCrLf);
  Setting& kept = values_[std::string(name)] = *setting;
  kept.problem.reset();
  if (!problem) return;
  kept.problem = std::move(problem->text);
  kept.effect = problem->effect;
  kept.cause = cause;
}

void Kept::hold(std::string_view name) {
  if (const auto kept = values_.find(name); kept != values_.end()) kept->second.irreplaceable = true;
}

void Kept::keep_related() {
  for (const auto& [name, setting] : settings_) {
    if (is_related(name) && !values_.contains(name)) keep(name, std::nullopt);
  }
}

bool Kept::writes_for(std::string_view library) const {
  return std::ranges::find(exports_, library) != exports_.end();
}

bool Kept::may_replace(std::string_view name) const {
  const auto library =
      std::ranges::find_if(kPrefixes, [&](const auto& known) { return name.starts_with(known.first); });
  const Setting* setting = find(name);
  if (setting && setting->of_node) return false;
  return (override_wrong_ || (setting && setting->own)) && library != kPrefixes.end() && writes_for(library->second);
}

bool Kept::is_wrong(std::string_view name) const {
  const auto kept = values_.find(name);
  return kept != values_.end() && kept->second.problem;
}

const Setting* Kept::in_effect(std::string_view name) const {
  // A wrong value has no effect if an export replaces it.
  if (is_wrong(name) && !values_.find(name)->second.irreplaceable && may_replace(name)) return nullptr;
  return find(name);
}

unsigned Kept::pkey_index() const {
  const Setting* setting = in_effect("NCCL_IB_PKEY");
  return setting ? static_cast<std::uint16_t>(nccl::parse_param(setting->value, 0)) : 0;
}

std::optional<unsigned> Kept::fixed_index() const {
  const Setting* setting = in_effect("NCCL_IB_GID_INDEX");
  const int index = setting ? nccl::parse_index(setting->value) : -1;
  return index < 0 ? std::nullopt : std::optional(static_cast<unsigned>(index));
}

}  // namespace init
