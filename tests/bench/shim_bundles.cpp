#include "shim_bundles.hpp"

#include <fmt/format.h>
#include <seccomp.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "support/inventories.hpp"
#include "support/tree.hpp"

namespace bench {
namespace {

using fabric::make_error;
using fabric::Result;
using nlohmann::json;

constexpr int kSystemCalls = 470;
constexpr unsigned kVariables = 90;  // a namespace with a dozen services

// As long as an engine's default profile: allows what libseccomp knows, by name.
Result<json> seccomp_profile() {
  json names = json::array();
  for (int number = 0; number < kSystemCalls; ++number) {
    const std::unique_ptr<char, decltype(&std::free)> name(seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number),
                                                           &std::free);
    if (name) names.push_back(name.get());
  }
  if (names.empty()) return make_error("libseccomp knows no system calls");
  return json{{"defaultAction", "SCMP_ACT_ERRNO"},
              {"syscalls", {{{"names", std::move(names)}, {"action", "SCMP_ACT_ALLOW"}}}}};
}

json mount(const char* destination, const char* type, std::initializer_list<const char*> options) {
  json entry{{"destination", destination}, {"type", type}, {"source", type}};
  for (const char* option : options)
    entry["options"].push_back(option);
  return entry;
}

}  // namespace

void lay_out_node(const std::string& directory) {
  auto node = test_support::rails(kRails, 4);
  // Opens, and is in every runtime's list.
  for (fabric::Hca& hca : node.hcas)
    hca.uverbs_dev = "1:3";
  test_support::lay_out(node, directory);
}

Result<std::string> config_text(const std::string& node, unsigned hcas) {
  json config;
  config["ociVersion"] = "1.0.2";
  config["root"] = {{"path", "rootfs"}, {"readonly", true}};
  config["process"] = {{"args", {"/bin/busybox", "sleep", "1000"}},
                       {"cwd", "/"},
                       {"user", {{"uid", 0}, {"gid", 0}}},
                       {"env", {"PATH=/bin"}},
                       {"noNewPrivileges", true}};
  for (unsigned i = 0; i < kVariables; ++i)
    config["process"]["env"].push_back(fmt::format("SERVICE_NUMBER_{}_PORT_8080_TCP_ADDR=10.96.12.{}", i, i));
  for (const char* kind : {"bounding", "effective", "permitted"})
    config["process"]["capabilities"][kind] = {"CAP_CHOWN", "CAP_MKNOD", "CAP_NET_BIND_SERVICE"};
  config["mounts"] = {mount("/proc", "proc", {"nosuid", "noexec", "nodev"}),
                      mount("/dev", "tmpfs", {"nosuid", "mode=755"}), mount("/sys", "bind", {"rbind", "ro"})};
  config["mounts"].back()["source"] = node + "/sys";
  for (const char* type : {"pid", "ipc", "uts", "mount", "network"})
    config["linux"]["namespaces"].push_back({{"type", type}});
  config["linux"]["resources"]["devices"] = {{{"allow", false}, {"access", "rwm"}}};
  config["linux"]["seccomp"] = TRY(seccomp_profile());
  std::string names;
  for (unsigned i = 0; i < hcas; ++i)
    names += fmt::format("{}mlx5_{}", i == 0 ? "" : ",", i);
  if (hcas > 0) config["annotations"]["rdma-init.io/devices"] = names;
  return config.dump();
}

void make_rootfs(const std::string& directory, const std::string& busybox) {
  for (const char* name : {"bin", "proc", "dev", "sys"})
    std::filesystem::create_directories(directory + "/rootfs/" + name);
  std::filesystem::copy_file(busybox, directory + "/rootfs/bin/busybox");
}

}  // namespace bench
