#include "scene.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "fabric/address.hpp"
#include "fabric/unique_fd.hpp"

namespace bench {
namespace {

using fabric::Result;
namespace fs = std::filesystem;

constexpr int kNullMajor = 1;
constexpr int kNullMinor = 3;

std::string rail_netdev(unsigned rail) {
  return fmt::format("rail{}", rail);
}

std::string pci_function(unsigned rail) {
  return fmt::format("0000:{:02x}:00.0", 0x10 + rail);
}

std::string link_local(unsigned rail) {
  return fmt::format("fe80::ff:fe00:{:x}02", rail);  // of the MAC address below, RFC 4291 appendix A
}

std::string ipv4(unsigned rail) {
  return fmt::format("10.{}.0.2", 100 + rail);
}

std::string gid_text(std::string_view address) {
  return to_gid_string(fabric::parse_address(address).value());
}

// Writes the files, directories and links of one tree and remembers the first failure.
class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {}

  void directory(const std::string& path) {
    std::error_code error;
    fs::create_directories(root_ + path, error);
    if (error) fail(error.value(), "create directory", path);
  }

  // Without a directory of its own: the caller made it, 50,000 times the same check would take seconds.
  void file(const std::string& path, std::string_view text) {
    const fabric::UniqueFd fd(::open((root_ + path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const std::string line = std::string(text) + "\n";
    if (!fd.ok() || ::write(fd.get(), line.data(), line.size()) < 0) fail(errno, "write", path);
  }

  void link(const std::string& path, const std::string& target) {
    std::error_code error;
    fs::create_symlink(fs::path(target).lexically_relative(fs::path(path).parent_path()), root_ + path, error);
    if (error) fail(error.value(), "link", path);
  }

  void node(const std::string& path) {
    const std::string full = root_ + path;
    if (::mknod(full.c_str(), S_IFCHR | 0666, makedev(kNullMajor, kNullMinor)) == 0) return;
    const fabric::UniqueFd fd(::open(full.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!fd.ok()) fail(errno, "create", path);
  }

  Result<void> result() && {
    if (error_) return std::move(*error_);
    return {};
  }

 private:
  void fail(int code, const char* verb, const std::string& path) {
    if (!error_) error_ = fabric::sys_error(code, "{} `{}{}`", verb, root_, path);
  }

  std::string root_;
  std::optional<fabric::Error> error_;
};

void write_gid_table(Tree& tree, const std::string& port, unsigned rail, unsigned slots) {
  for (const char* name : {"/gids", "/gid_attrs/types", "/gid_attrs/ndevs"})
    tree.directory(port + name);
  const std::string own[] = {gid_text(link_local(rail)), gid_text(link_local(rail)), gid_text(ipv4(rail)),
                             gid_text(ipv4(rail))};
  const std::string empty = to_gid_string(fabric::Address{});
  for (unsigned slot = 0; slot < slots; ++slot) {
    const bool used = slot <= kWantedIndex;
    tree.file(fmt::format("{}/gids/{}", port, slot), used ? own[slot] : empty);
    // Reading these of an empty slot answers EINVAL in sysfs; a file can only be empty.
    tree.file(fmt::format("{}/gid_attrs/types/{}", port, slot), !used ? "" : slot % 2 ? "RoCE v2" : "IB/RoCE v1");
    tree.file(fmt::format("{}/gid_attrs/ndevs/{}", port, slot), used ? rail_netdev(rail) : "");
  }
}

void write_netdev(Tree& tree, const std::string& device, const Rail& rail) {
  const std::string path = device + "/net/" + rail.netdev;
  tree.directory(path);
  for (const auto& [name, text] : {std::pair<const char*, const char*>{"carrier", "1"},
                                   {"dev_id", "0x0"},
                                   {"dev_port", "0"},
                                   {"mtu", "4200"},
                                   {"operstate", "up"},
                                   {"phys_port_name", "p0"},
                                   {"type", "1"}}) {
    tree.file(path + "/" + name, text);
  }
  tree.file(path + "/address", rail.mac);
  tree.link(path + "/device", device);
  tree.link("/sys/class/net/" + rail.netdev, path);
}

void write_hca(Tree& tree, const Scene& scene, const Rail& rail, unsigned number) {
  const std::string device = fmt::format("/sys/devices/pci0000:00/0000:00:01.0/{}", pci_function(number));
  const std::string name = fmt::format("mlx5_{}", number);
  const std::string hca = device + "/infiniband/" + name;
  const std::string port = hca + "/ports/1";
  tree.directory(port);
  tree.file(device + "/numa_node", number % 2 ? "1" : "0");
  tree.file(device + "/vendor", "0x15b3");
  tree.file(device + "/device", "0x1021");
  tree.file(device + "/class", "0x020000");
  tree.link(device + "/driver", "/sys/bus/pci/drivers/mlx5_core");
  tree.link("/sys/bus/pci/devices/" + pci_function(number), device);
  tree.link(hca + "/device", device);
  tree.link("/sys/class/infiniband/" + name, hca);
  tree.file(hca + "/node_guid", fmt::format("0200:00ff:fe00:{:02x}02", number));
  tree.file(hca + "/node_type", "1: CA");
  tree.file(hca + "/fw_ver", "28.39.1002");
  tree.file(port + "/state", "4: ACTIVE");
  tree.file(port + "/phys_state", "5: LinkUp");
  tree.file(port + "/link_layer", "Ethernet");
  tree.file(port + "/rate", "400 Gb/sec (4X NDR)");
  tree.file(port + "/lid", "0x0");
  tree.file(port + "/sm_lid", "0x0");
  write_gid_table(tree, port, number, scene.slots);
  write_netdev(tree, device, rail);
  const std::string node = fmt::format("uverbs{}", number);
  const std::string verbs = device + "/infiniband_verbs/" + node;
  tree.directory(verbs);
  tree.file(verbs + "/ibdev", name);
  tree.file(verbs + "/dev", fmt::format("231:{}", 192 + number));
  tree.link("/sys/class/infiniband_verbs/" + node, verbs);
  tree.node("/dev/infiniband/" + node);
}

}  // namespace

std::vector<Rail> rails(const Scene& scene) {
  std::vector<Rail> all;
  for (unsigned rail = 0; rail < scene.hcas; ++rail) {
    all.push_back(
        {rail_netdev(rail), fmt::format("02:00:00:00:{:02x}:02", rail), ipv4(rail) + "/16", link_local(rail) + "/64"});
  }
  return all;
}

Result<void> write_tree(const Scene& scene, const std::string& directory) {
  Tree tree(directory);
  tree.directory("/sys/class/net");
  tree.directory("/dev");
  tree.node("/dev/null");
  if (scene.hcas > 0) {
    for (const char* path : {"/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/bus/pci/devices",
                             "/sys/bus/pci/drivers/mlx5_core", "/dev/infiniband"}) {
      tree.directory(path);
    }
    tree.node("/dev/infiniband/rdma_cm");
  }
  unsigned number = 0;
  for (const Rail& rail : rails(scene))
    write_hca(tree, scene, rail, number++);
  return std::move(tree).result();
}

}  // namespace bench
