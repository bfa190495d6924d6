// Reads slurm.conf(5): the settings of Slurm that concern RDMA.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hook {

// Settings by their names in lower case, because Slurm ignores the case of names. A setting that occurs twice has its
// later value.
using SlurmSettings = std::map<std::string, std::string>;

struct SlurmConf {
  std::string path;  // "/etc/slurm/slurm.conf"
  SlurmSettings settings;
  std::string
      error;  // why the file or an included one cannot be read, so that a setting can be missing; empty: all were read
  std::set<std::string>
      values;  // the values of all its settings: newer releases of Slurm execute the program of each Prolog
};

// Returns a copy with the letters A to Z in lower case.
std::string in_lower_case(std::string_view text);

// Parses a file into its settings in their order, with names in lower case. An `Include` is a setting "include". Joins
// continued lines; drops comments and quotation marks. Pure.
std::vector<std::pair<std::string, std::string>> parse_slurm_conf(std::string_view text);

// Reads the first of /etc/slurm/slurm.conf, /run/slurm/conf/slurm.conf (without a local file, slurmd stores that of
// slurmctld there) and /etc/slurm-llnl/slurm.conf, with the files that it includes. nullopt: there is none.
// root: prefix of the node's files.
std::optional<SlurmConf> read_slurm_conf(const std::string& root);

// Returns true if slurmd replaces the RLIMIT_MEMLOCK of a job by that of the shell that submits it. Pure.
bool propagates_memlock(const SlurmSettings& settings);

// Returns "PropagateResourceLimitsExcept=NOFILE,MEMLOCK": the setting with MEMLOCK added to the limits that it has,
// because a second line would replace them. Printable. Pure.
std::string setting_with_memlock(const SlurmSettings& settings);

}  // namespace hook
