// Values of the user that depend on the version of NCCL: values that an older NCCL reads differently, and numbers. The
// other checks of the decision assume the newest NCCL, and the actual version is often not known.
#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"
#include "init/deciding.hpp"

namespace init {
namespace {

constexpr std::string_view kConfFile = "NCCL_CONF_FILE";

bool may_be_before(const Deciding& d, const nccl::Version& version) {
  const auto named = d.named_version();
  return !named || *named < version;
}

// Exports the variables under the values on which the decision rests.
void restate(Deciding& d, const std::vector<std::string>& names, std::string_view why) {
  for (const std::string& name : names) {
    if (!d.kept.may_replace(name) || d.kept.is_wrong(name)) continue;
    d.kept.keep(name, Problem{std::string(why)}, "older-nccl");
    d.put(name, d.kept.find(name)->value, "the value of the file, for an older NCCL");
  }
}

void report_conf_file(Deciding& d) {
  const Setting* file = d.kept.find(kConfFile);
  if (!file || !may_be_before(d, nccl::kConfFile)) return;
  const OlderReading reading{std::string(kConfFile), "NCCL before 2.23 does not know it, and reads ~/.nccl.conf",
                             nccl::kConfFile};
  if (d.named_version() && d.kept.may_replace(kConfFile)) {
    const auto is_of_file = [&](const Setting& setting) { return setting.source == file->value; };
    restate(d, d.kept.names_if(is_of_file), reading.what);
  } else if (d.named_version()) {
    keep_older(d, reading);
  } else {
    d.warn("older-nccl", Verdict::kNote, fmt::format("{}={}: {}", kConfFile, printable(file->value), reading.what));
  }
}

void report_cr(Deciding& d) {
  const auto names = d.kept.names_if([](const Setting& setting) { return setting.had_cr; });
  if (names.empty() || !may_be_before(d, nccl::kTrimsCr)) return;
  if (d.named_version()) {
    restate(d, names, kCrLf);
    for (const std::string& name : names)
      d.kept.keep(name, Problem{kCrLf}, "older-nccl");
  } else {
    d.warn("older-nccl", Verdict::kNote,
           fmt::format("{} ({}): {}", printable(names.front()), printable(d.kept.find(names.front())->source), kCrLf));
  }
}

}  // namespace

void check_numbers(Deciding& d) {
  for (const Number& number : numbers()) {
    const std::string_view name = number.name;
    const Setting* setting = d.kept.find(name);
    const auto library = name.starts_with("NCCL_") ? "nccl" : name.starts_with("UCX_") ? "ucx" : "nvshmem";
    if (!setting || !d.kept.writes_for(library)) continue;
    // NCCL reads the length of the prefix only for this routing.
    if (name == "NCCL_IB_SUBNET_PREFIX_LEN" && !d.kept.find("NCCL_IB_SUBNET_AWARE_ROUTING")) continue;
    d.kept.keep(name, check_number(number, setting->value, d.named_version()), "number");
  }
}

std::optional<OlderReading> older_list(const Deciding& d) {
  const Setting* list = d.kept.find("NCCL_IB_HCA");
  if (!list || !may_be_before(d, nccl::kEmptyPortIsAny) || !nccl::has_empty_port(list->value)) return std::nullopt;
  return OlderReading{"NCCL_IB_HCA", "NCCL before 2.30.5 reads an empty port as 0, which no HCA has",
                      nccl::kEmptyPortIsAny};
}

std::optional<OlderReading> older_index(Deciding& d) {
  const std::string name(kIndexNames[0]);
  const Setting* setting = d.kept.find(name);
  if (!setting || d.choice.ports.empty()) return std::nullopt;
  const int index = nccl::parse_index(setting->value);
  if (index < 0) {
    if (!may_be_before(d, nccl::kChoosesGid)) return std::nullopt;
    return OlderReading{name, fmt::format("NCCL before 2.21 uses {} itself as the index, and no port has it", index),
                        nccl::kChoosesGid};
  }
  if (!may_be_before(d, nccl::kIgnoresIndexOnInfiniband)) return std::nullopt;
  for (const std::size_t i : d.choice.ports) {
    if (!d.at(i).port->is_infiniband()) continue;
    const auto length = d.at(i).port->gid_tbl_len;
    d.decision.needs_full |= !length;
    if (!length || static_cast<unsigned>(index) < *length) continue;
    return OlderReading{name,
                        fmt::format("{} has {} GIDs, and NCCL before 2.22 does not connect over an InfiniBand port "
                                    "that does not have this one",
                                    printable(d.at(i).name()), *length),
                        nccl::kIgnoresIndexOnInfiniband};
  }
  return std::nullopt;
}

void keep_older(Deciding& d, const std::optional<OlderReading>& reading) {
  const auto named = d.named_version();
  if (reading && named && *named < reading->before && d.kept.writes_for("nccl")) {
    d.kept.keep(reading->name, Problem{reading->what, Verdict::kBad}, "older-nccl");
  }
}

void report_older(Deciding& d) {
  if (!d.kept.writes_for("nccl")) return;
  for (const auto& reading : {older_list(d), older_index(d)}) {
    const Setting* setting = reading ? d.kept.in_effect(reading->name) : nullptr;
    if (!setting || setting->own || d.named_version()) continue;
    d.warn("older-nccl", Verdict::kNote,
           fmt::format("{}={}: {}", reading->name, printable(setting->value), reading->what));
  }
  report_conf_file(d);
  report_cr(d);
}

}  // namespace init
