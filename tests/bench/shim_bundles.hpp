// Bundles as an engine makes them, for containers that ask for HCAs of a node in files.
#pragma once

#include <string>

#include "fabric/result.hpp"

namespace bench {

inline constexpr unsigned kRails = 8;

// The node's file tree.
void lay_out_node(const std::string& directory);

// config.json of a container of usual size, with a seccomp profile, that sees the /sys of that node and asks for that
// many of its HCAs; 0: for none. Errors: libseccomp knows no system calls.
fabric::Result<std::string> config_text(const std::string& node, unsigned hcas);

// directory: the bundle's; its rootfs gets busybox.
void make_rootfs(const std::string& directory, const std::string& busybox);

}  // namespace bench
