// What is already set for the trainer: its environment and NCCL's configuration files.
// NCCL reads $NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf, and sets what is not set yet, so the environment
// beats the first file and the first file beats the second (src/misc/param.cc, 2.30.7).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace init {

struct Setting {
  std::string value;
  std::string source;   // "environment" or the path of a file
  bool had_cr = false;  // its line in that file ends with CR LF
};

// NAME to value; only names of the libraries that rdma-init writes for.
using Settings = std::map<std::string, Setting, std::less<>>;

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

}  // namespace init
