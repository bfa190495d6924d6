// The variables that are already set for the trainer: its environment, the site's policy and the configuration files of
// NCCL and RCCL.
// NCCL reads $NCCL_CONF_FILE (or ~/.nccl.conf), then /etc/nccl.conf, and sets only variables that are not set. The
// environment therefore has precedence over the first file, and the first file over the second (src/misc/param.cc,
// 2.18.3 to 2.30.7). RCCL, AMD's copy of NCCL with the same variables, reads ~/.rccl.conf and /etc/rccl.conf in their
// place, and none of NCCL's files.
//
// A trainer uses one of the two libraries. The GPUs do not show it everywhere: rdma-init may run in a container without
// GPUs, whose output another container uses. So a variable in a file of either library is kept: an export then never
// overrides a value that the running library reads. If both libraries' files set a variable, NCCL's value is checked.
//
// ~ is the user's home in the user database before 2.30, and $HOME since then. If the version is not known, the files
// of both homes are kept, those in $HOME first.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "init/check.hpp"
#include "init/nccl_rules.hpp"
#include "init/rail_place.hpp"

namespace base {
class Rooted;
}

namespace init {

struct Setting {
  std::string value;
  std::string source;      // "environment", kNodeSource or the path of a file
  bool had_cr = false;     // the line in that file ends with CR LF
  bool own = false;        // an earlier run of rdma-init exported it (mark_own())
  bool was_cut = false;    // NCCL's buffer is shorter than the value in that file; `value` is its first part
  bool of_policy = false;  // with_policy() added it: this run exports it
  bool of_node = false;    // read_node_values() added it, also if an earlier run exported it: --override keeps it
  // Kept sets the next members:
  std::optional<std::string> problem = {};  // why the value is wrong, in one line
  Verdict effect = Verdict::kNote;          // effect of the problem on a job with this value
  std::string_view cause = {};              // stable name of the problem
  bool irreplaceable = false;               // wrong, and no better value is known: --override keeps it
};

inline constexpr const char* kNodeSource = "config.json of the node";

// Settings by name. Only variables of the libraries that rdma-init exports for.
using Settings = std::map<std::string, Setting, std::less<>>;

// Returns the setting of a variable, nullptr if it is not set or empty. An empty value has no meaning to the libraries
// and is replaced.
const Setting* find_setting(const Settings& settings, std::string_view name);

// Returns the version of NCCL: `passed`, which is --nccl-version, or else $NCCL_VERSION, which images have. Returns
// nullopt if neither is known.
std::optional<nccl::Version> nccl_version(const std::optional<nccl::Version>& passed, const Settings& settings);

// Returns the value of a variable of this process, "" if it is not set.
std::string own_variable(const char* name);

// Adds the NAME=value lines of a file; settings that exist stay. Lines are read as NCCL does: split at the first '=',
// only a final CR trimmed, lines that begin with '#' skipped, no quotes. A value ends after 1,023 bytes, because NCCL
// copies it into a buffer of 1,024 (all versions, also RCCL). Names are not cut, since no variable is that long. Since
// 2.30, a line has at most 4,095 bytes and the rest is the next line; that rest sets no variable that matters here.
void add_conf(std::string_view text, const std::string& path, Settings& settings);

// Returns the unchanged lines that add_conf() reads. Other lines are left out, because NCCL_CONF_FILE may name a file
// with secrets.
std::string conf_lines(std::string_view text);

// Adds the variables of an environment (the process's "environ") that the site's policy or the node may set.
void add_environment(const char* const* environment, Settings& settings);

// Marks the variables of the environment that an earlier run of rdma-init exported, unless they were changed since.
// Removes such a NCCL_IB_HCA if that run was on another host: srun takes the environment of a job's first node to all
// nodes, and the list has the HCAs of that node. exports: kExportsName of the environment. host: this_host().
void mark_own(std::string_view exports, Settings& settings, std::string_view host = {});

// The variable with which rdma-init marks its exports: "NAME=value;NAME=value;host=NODE". A value with a semicolon is
// left out.
inline constexpr const char* kExportsName = "RDMA_INIT_EXPORTS";
inline constexpr std::string_view kHostEntry = "host=";

// Returns the host name as uname(2) does.
std::string this_host();

// Returns a warning for each value that NCCL cuts.
std::vector<Check> cut_values(const Settings& settings);

// Returns the home directory of a user in the text of /etc/passwd, "" if the user has no entry. NCCL before 2.30 calls
// getpwuid(getuid()), which may also find users of other databases (nsswitch.conf).
std::string passwd_home(std::string_view passwd, uid_t user);

// Returns the directories that ~ stands for, without duplicates. version: NCCL's, nullopt if it is unknown. home:
// $HOME, passwd: passwd_home(); empty if there is none.
std::vector<std::string> conf_homes(const std::optional<nccl::Version>& version, const std::string& home,
                                    const std::string& passwd);

// Returns the paths of the configuration files, NCCL's in NCCL's order and then RCCL's. homes: conf_homes().
std::vector<std::string> conf_paths(const Settings& settings, const std::vector<std::string>& homes);

struct ConfFiles {
  std::vector<std::string> paths;            // paths of the files that NCCL reads (conf_paths())
  std::map<std::string, std::string> texts;  // the texts of the readable files, by path
  std::vector<std::string> problems;         // a line for each unreadable file that exists or that NCCL_CONF_FILE names
};

// Reads the configuration files. A file above 64 MiB is not read.
ConfFiles read_conf_files(const Settings& settings, std::vector<std::string> paths, const std::string& root);

// Adds the variables of the files, in the order of the paths; settings that exist stay. texts: ConfFiles::texts.
Settings with_conf(Settings settings, const std::vector<std::string>& paths,
                   const std::map<std::string, std::string>& texts);

// Returns the settings with the values that this version of NCCL reads: before 2.30 the CR at the end of a line is part
// of the value.
Settings read_by(const nccl::Version& version, Settings settings);

// Variables that a site or an image sets for all trainers: the file RDMA_INIT_ENV_FILE, or /etc/rdma-init/env.d/*.conf
// in order of their names. The files have NAME=value lines, '#' lines and empty lines. Values have no quoting; a CR at
// the end is removed. A variable applies if the environment has no value for it, and precedes NCCL's configuration
// files. Such a value is checked like a value that the user has set.
//
// A policy file may hold secrets, so the texts in `problems` quote no line and no value of it.
struct SitePolicy {
  Settings settings;                  // the first file that sets a variable has precedence
  std::vector<std::string> problems;  // lines and files that were ignored, one line each
  Rails rails = {};                   // the rails that the node states; empty: none
};

// Adds the lines of one file. A problem names the file and the line number, and the variable of a well-formed line.
void add_policy(std::string_view text, const std::string& path, SitePolicy& policy);

// Reads the site's policy. file: RDMA_INIT_ENV_FILE, empty if unset; it may be a symbolic link, as each file of a
// mounted ConfigMap is. env.d and its files must not be links. only_trusted: ignore env.d and its files unless root or
// this user owns them and no other user can write to them.
SitePolicy read_site_policy(const base::Rooted& files, const std::string& file, bool only_trusted);

// Reads the site's values that the node gives: the text of fabric::kSiteName. An image can set this variable too, so a
// text that the node cannot have written is ignored as a whole, with a problem.
SitePolicy read_node_values(std::string_view text);

// Adds the variables of the policy that are not set yet.
Settings with_policy(Settings settings, const SitePolicy& policy);

}  // namespace init
