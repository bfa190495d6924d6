// What is already set for the trainer: its environment, the site's policy and NCCL's configuration files.
// NCCL reads $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf, and sets what is not set yet, so the environment
// beats the first file and the first file beats the second (src/misc/param.cc, 2.30.7).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace init {

class Rooted;

struct Setting {
  std::string value;
  std::string source;   // "environment" or the path of a file
  bool had_cr = false;  // its line in that file ends with CR LF
};

// NAME to value; only names of the libraries that rdma-init writes for.
using Settings = std::map<std::string, Setting, std::less<>>;

// The setting of a variable; nullptr when it is not set, or empty: an empty value chooses nothing, so it is replaced
// like one that is not set.
const Setting* find_setting(const Settings& settings, std::string_view name);

// True for names that matter to rdma-init: NCCL_*, UCX_*, NVSHMEM_*, ...
bool is_library_variable(std::string_view name);

// Adds the NAME=value lines of a file; what is set already stays. NCCL's reading: split at the first '=', nothing
// trimmed but a final CR, lines that begin with '#' skipped, no quotes.
void add_conf(std::string_view text, const std::string& path, Settings& settings);

// The lines of a file that add_conf() reads, as they are. NCCL_CONF_FILE can name a file that holds secrets, too.
std::string conf_lines(std::string_view text);

// Adds the variables of an environment (the process's "environ").
void add_environment(const char* const* environment, Settings& settings);

// Paths of the configuration files in NCCL's order for these settings; home: $HOME.
std::vector<std::string> conf_paths(const Settings& settings, std::string_view home);

// path to text of those files that can be read; problems: takes a line for each other one that is there, or that
// NCCL_CONF_FILE names. A file of more than 64 MiB is not read.
std::map<std::string, std::string> read_conf_files(const Settings& settings, const std::vector<std::string>& paths,
                                                   const std::string& root, std::vector<std::string>& problems);

// Variables that a site or an image sets for all its trainers: RDMA_INIT_ENV_FILE, else /etc/rdma-init/env.d/*.conf in
// order of their names. NAME=value lines, '#' lines and empty ones apart; nothing is quoted, and only a CR at the end
// is dropped. They count where the environment has no value, before NCCL's configuration files, and are checked like
// all that is kept.
//
// Such a file can be one that holds secrets, so no problem quotes a line or a value of it.
struct SitePolicy {
  Settings settings;                  // the first file that sets a variable wins
  std::vector<std::string> problems;  // lines and files that were not taken, one line each
};

// Of the libraries: NCCL_*, UCX_*, ... Never RDMA_INIT_*, PATH or LD_*.
bool is_policy_variable(std::string_view name);

// One file's lines. A problem names the file, the line number and, of a well-formed line, the variable.
void add_policy(std::string_view text, const std::string& path, SitePolicy& policy);

// file: RDMA_INIT_ENV_FILE, empty if unset; it may be a symbolic link, as each file of a mounted ConfigMap is. Neither
// env.d nor a file in it may be one. only_trusted: env.d and a file in it count only if root or this user owns them and
// nobody else can write to them.
SitePolicy read_site_policy(const Rooted& files, const std::string& file, bool only_trusted);

// What of it counts beside the settings, which then have it too.
Settings apply_policy(const SitePolicy& policy, Settings& settings);

}  // namespace init
