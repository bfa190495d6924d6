// Variables that a site or an image sets for all its trainers: RDMA_INIT_ENV_FILE, else /etc/rdma-init/env.d/*.conf in
// order of their names. NAME=value lines, '#' lines and empty ones apart; nothing is quoted, and only a CR at the end
// is dropped. They count where the environment has no value, before NCCL's configuration files, and are checked like
// all that is kept.
//
// Such a file can be one that holds secrets, so no problem quotes a line or a value of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "init/nccl_conf.hpp"
#include "init/rooted.hpp"

namespace init {

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
