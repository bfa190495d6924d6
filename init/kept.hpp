// Values that the user or a configuration file has set: kept, checked, and reported when they are wrong. Pure.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "init/candidates.hpp"
#include "init/nccl_rules.hpp"
#include "init/settings.hpp"

namespace init {

struct KeptValue {
  std::string value;
  std::string source;
  std::optional<std::string> problem;  // one line
};
using KeptValues = std::map<std::string, KeptValue, std::less<>>;

// NCCL's rules for choosing a GID by itself, in the order family, range, version.
inline constexpr std::array<std::string_view, 3> kGidRuleNames = {"NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",
                                                                  "NCCL_IB_ROCE_VERSION_NUM"};

// What is wrong with a value of NCCL_IB_HCA: it selects nothing, more than it names, or a port that cannot work.
std::optional<std::string> check_hca_list(std::string_view value, const std::vector<Candidate>& candidates,
                                          const nccl::Version& version);

// What is wrong with a fixed GID index on the chosen RoCE ports: empty, v1, of another netns, or not there.
// unknown is set when a table was not read far enough to tell. family: what the operator wants, so that of another one
// no address is better than a link-local one.
std::optional<std::string> check_gid_index(long index, const std::vector<const Candidate*>& ports, bool& unknown,
                                           std::optional<fabric::Family> family = {});

// What is wrong with a value of NCCL_IB_ADDR_RANGE, which NCCL reads as these rules: it is not what was meant. roce: of
// which 2.22.3 parses it, unlike of InfiniBand.
std::optional<std::string> check_range(std::string_view value, const nccl::GidRules& rules, bool roce);

// What a wrong value becomes under --override when nothing better is exported in its place: the library's default. To
// unset the variable would not do, because NCCL would then take the value of its configuration files. Empty for names
// without such a default.
std::string neutral_value(std::string_view name, bool ipv6);

// The values found so far, and which of them will be in effect.
class Kept {
 public:
  // The arguments must outlive it. override_wrong: values with a problem give way, as far as exports reach.
  Kept(const Settings& settings, bool override_wrong, const std::vector<std::string>& exports)
      : settings_(settings), override_wrong_(override_wrong), exports_(exports) {}

  const Setting* find(std::string_view name) const { return find_setting(settings_, name); }
  // Records the value, if the variable is set, with what is wrong about it.
  void keep(std::string_view name, std::optional<std::string> problem);
  // Records what else is set that bears on the choice and was not checked.
  void keep_related();

  bool writes_for(std::string_view library) const;
  // True if a wrong value of the variable may be replaced: what is not written for a library stays as it is.
  bool may_replace(std::string_view name) const;
  // The value that will be in effect because it was set before us; nullptr if the variable is ours to set.
  const Setting* in_effect(std::string_view name) const;
  // The name of a variable whose line in a file ends with CR LF; "": there is none.
  std::string find_cr() const;
  // The index that NCCL_IB_GID_INDEX fixes; nullopt when NCCL chooses.
  std::optional<unsigned> fixed_index() const;
  const KeptValues& values() const { return values_; }

 private:
  const Settings& settings_;
  bool override_wrong_;
  const std::vector<std::string>& exports_;
  KeptValues values_;
};

}  // namespace init
