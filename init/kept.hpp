// Values that the user or a configuration file has set: kept, checked, and reported when they are wrong. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "init/candidates.hpp"
#include "init/nccl_conf.hpp"
#include "init/nccl_rules.hpp"

namespace init {

struct KeptValue {
  std::string value;
  std::string source;
  std::optional<std::string> problem;  // one line
};
using KeptValues = std::map<std::string, KeptValue, std::less<>>;

// The value of a variable that is set and not empty. An empty one makes no choice, so it is replaced like an unset one.
const Setting* find_setting(const Settings& settings, std::string_view name);

// What is wrong with a value of NCCL_IB_HCA: it selects nothing, more than it names, or a port that cannot work.
std::optional<std::string> check_hca_list(std::string_view value, const std::vector<Candidate>& candidates,
                                          const nccl::Version& version);

// What is wrong with a fixed GID index on the chosen RoCE ports: empty, v1, of another netns, or not there.
// unknown is set when a table was not read far enough to tell.
std::optional<std::string> check_gid_index(long index, const std::vector<const Candidate*>& ports, bool& unknown);

}  // namespace init
