// Nodes in files, bundles as an engine makes them for containers that ask for HCAs there, and what others hold.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fabric/result.hpp"

namespace bench {

inline constexpr unsigned kRails = 8;

// The node's file tree: eight rails, and VFs of the first one.
void lay_out_node(const std::string& directory, unsigned vfs = 0);

// config.json of about that many bytes (10,000 is what Podman and Docker write, 60,000 is a pod of a namespace with
// many services): variables, annotations and mounts, a seccomp profile of all system calls. The container sees the /sys
// of that node, and asks for that many of its HCAs; 0: for none. Errors: libseccomp knows no system calls.
fabric::Result<nlohmann::json> config_of(const std::string& node, unsigned hcas, std::size_t bytes);
void add_hook(nlohmann::json& config, const char* stage, const std::vector<std::string>& argv);

// directory: the bundle's; its rootfs gets busybox.
void make_rootfs(const std::string& directory, const std::string& busybox);

// rdma-hook's configuration: the defaults. Where the hard limit of locked memory is not unlimited and may not be raised
// (CAP_SYS_RESOURCE) it is left alone, which is said on standard output.
void write_config(const std::string& path);

// The annotation that asks for that many of the rails; empty: for none.
std::string first_rails(unsigned number);

// Grants of a process that lives as long as the benchmark, on HCAs that nobody else asks for and on those that are.
// node: its file tree. path: the ledger's.
fabric::Result<void> fill_ledger(const std::string& node, const std::string& path, unsigned grants);

}  // namespace bench
