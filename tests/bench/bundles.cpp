#include "bundles.hpp"

#include <fmt/format.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "fabric/read_inventory.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/ledger/ledger.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace bench {
namespace {

using fabric::make_error;
using fabric::Result;
using nlohmann::json;

constexpr int kSystemCalls = 470;

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

json mount(const std::string& destination, const std::string& type, const std::string& source,
           const std::vector<std::string>& options) {
  return {{"destination", destination}, {"type", type}, {"source", source}, {"options", options}};
}

// Volumes and annotations in proportion, and variables of services up to the size.
void fill_up(json& config, const std::string& volume, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / 2500; ++i)
    config["mounts"].push_back(mount(fmt::format("/mnt/volume-{}", i), "bind", volume, {"rbind", "rprivate", "ro"}));
  for (std::size_t i = 0; i < bytes / 5000; ++i)
    config["annotations"][fmt::format("example.com/setting-of-the-pod-{}", i)] = std::string(400, 'x');
  std::size_t size = config.dump().size();
  for (unsigned i = 0; size < bytes; ++i) {
    std::string variable = fmt::format("SERVICE_NUMBER_{}_PORT_8080_TCP_ADDR=10.96.12.{}", i, i % 256);
    size += variable.size() + 3;  // quotes and comma
    config["process"]["env"].push_back(std::move(variable));
  }
}

}  // namespace

void lay_out_node(const std::string& directory, unsigned vfs) {
  auto node = test_support::rails(kRails, 4);
  for (unsigned i = 0; i < vfs; ++i) {
    const unsigned number = kRails + i;
    auto port = test_support::ethernet_port({});
    port.gid_tbl_len = 1;
    fabric::Hca vf = test_support::hca(fmt::format("mlx5_{}", number), number, {std::move(port)});
    vf.pci = fmt::format("0000:{:02x}:{:02x}.{}", 0xc0 + i / 256, i / 8 % 32, i % 8);
    vf.physfn = node.hcas[0].pci;
    node.hcas.push_back(std::move(vf));
  }
  // Opens, and is in every runtime's list.
  for (fabric::Hca& hca : node.hcas)
    hca.uverbs_dev = "1:3";
  test_support::lay_out(node, directory);
}

Result<json> config_of(const std::string& node, unsigned hcas, std::size_t bytes) {
  json config;
  config["ociVersion"] = "1.0.2";
  config["root"] = {{"path", "rootfs"}, {"readonly", true}};
  config["process"] = {{"args", {"/bin/busybox", "sleep", "1000"}},
                       {"cwd", "/"},
                       {"user", {{"uid", 0}, {"gid", 0}}},
                       {"env", {"PATH=/bin"}},
                       {"noNewPrivileges", true}};
  for (const char* kind : {"bounding", "effective", "permitted"})
    config["process"]["capabilities"][kind] = {"CAP_CHOWN", "CAP_MKNOD", "CAP_NET_BIND_SERVICE"};
  config["mounts"] = {mount("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}),
                      mount("/dev", "tmpfs", "tmpfs", {"nosuid", "mode=755"}),
                      mount("/sys", "bind", node + "/sys", {"rbind", "ro"})};
  for (const char* type : {"pid", "ipc", "uts", "mount", "network"})
    config["linux"]["namespaces"].push_back({{"type", type}});
  config["linux"]["resources"]["devices"] = {{{"allow", false}, {"access", "rwm"}}};
  config["linux"]["seccomp"] = TRY(seccomp_profile());
  if (hcas > 0) config["annotations"]["rdma-init.io/devices"] = first_rails(hcas);
  fill_up(config, node, bytes);
  return config;
}

void add_hook(json& config, const char* stage, const std::vector<std::string>& argv) {
  config["hooks"][stage].push_back({{"path", argv.front()}, {"args", argv}, {"env", json::array()}});
}

void make_rootfs(const std::string& directory, const std::string& busybox) {
  for (const char* name : {"bin", "proc", "dev", "sys"})
    std::filesystem::create_directories(directory + "/rootfs/" + name);
  std::filesystem::copy_file(busybox, directory + "/rootfs/bin/busybox");
}

void write_config(const std::string& path) {
  rlimit own{};
  ::getrlimit(RLIMIT_MEMLOCK, &own);
  const rlimit unlimited{own.rlim_cur, RLIM_INFINITY};
  const bool raised = ::setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0;
  ::setrlimit(RLIMIT_MEMLOCK, &own);
  if (!raised) fmt::print("without CAP_SYS_RESOURCE: RLIMIT_MEMLOCK is left alone (\"memlock\": null)\n");
  test_support::write_file(path, raised ? "{}" : R"({"memlock": null})");
  ::chmod(path.c_str(), 0644);
}

std::string first_rails(unsigned number) {
  std::string names;
  for (unsigned i = 0; i < number; ++i)
    names += fmt::format("{}mlx5_{}", i == 0 ? "" : ",", i);
  return names;
}

Result<void> fill_ledger(const std::string& node, const std::string& path, unsigned grants) {
  auto ledger = TRY(hook::Ledger::open(path));
  const auto process = TRY(hook::identify(::getpid()));
  const auto inventory = fabric::read_node({.root = node, .hcas = {}, .facts = {}, .others = {}});
  for (unsigned i = 0; i < grants; ++i) {
    const std::string name = fmt::format("mlx5_{}", i % kRails);
    const auto known = hook::devices_of({name}, inventory, node);
    const auto owner = hook::container_owner(fmt::format("other-{}", i), "/run/other");
    auto locked = TRY(ledger.lock({name}, hook::kHcaLockTimeoutMs, known.devices));
    TRY_VOID(locked.book(owner, {{name, hook::Mode::kHca, 1, std::nullopt}}, {owner.key, owner.label, process}));
    TRY_VOID(ledger.settle(owner.key));
  }
  return {};
}

}  // namespace bench
