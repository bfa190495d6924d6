// Where rdma-nri and its worker find the node, its configuration and its ledger, and where they log.
#pragma once

#include <string>

#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"

namespace shim {

struct GrantSettings {
  hook::ConfigPaths config;
  std::string root;  // prefix of the node's /sys, /dev and /proc
  std::string ledger = hook::kLedgerPath;
  bool to_syslog = false;  // the runtime started this program, with no stderr
};

inline hook::Log plugin_log(const GrantSettings& settings) {
  return settings.to_syslog ? hook::Log::to_syslog("rdma-nri") : hook::Log::to_stderr("rdma-nri");
}

}  // namespace shim
