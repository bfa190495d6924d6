#include "tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "arbitrary.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace fuzz {
namespace {

namespace fs = std::filesystem;
using base::Attr;

// Returns a valid name of a directory entry.
std::string file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  std::replace(name.begin(), name.end(), '\0', '_');
  return name.empty() || name == "." || name == ".." ? "_" : name;
}

class Writer {
 public:
  Writer(FuzzedDataProvider& data, std::string root) : data_(data), root_(std::move(root)) {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  void directory(const std::string& path) {
    std::error_code ignored;
    fs::create_directories(root_ + path, ignored);
  }

  void link(const std::string& path, const std::string& target) {
    (void)::symlink(target.c_str(), (root_ + path).c_str());
  }

  // Sometimes makes another object than the file, or none.
  void file(const std::string& path, std::string_view text) {
    const std::string full = root_ + path;
    switch (data_.ConsumeIntegralInRange(0, 63)) {
      case 0:
        return;  // gone
      case 1:
        return directory(path);
      case 2:
        return link(path, "nowhere");
      case 3:
        return (void)::mkfifo(full.c_str(), 0600);
      case 4:
        return put(full, data_.ConsumeRandomLengthString(5000));
      default:
        put(full, std::string(text) + "\n");
    }
  }

  void attribute(const std::string& path, const Attr<std::string>& value) {
    if (const auto* text = std::get_if<std::string>(&value)) file(path, *text);
  }

 private:
  static void put(const std::string& path, std::string_view text) {
    const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600));
    if (fd.ok()) (void)!::write(fd.get(), text.data(), text.size());
  }

  FuzzedDataProvider& data_;
  std::string root_;
};

void write_port(Writer& writer, const std::string& hca, const fabric::Port& port) {
  const std::string path = hca + "/ports/" + std::to_string(port.number);
  for (const char* name : {"/gids", "/gid_attrs/types", "/gid_attrs/ndevs"})
    writer.directory(path + name);
  writer.attribute(path + "/state", port.state);
  writer.attribute(path + "/phys_state", port.phys_state);
  writer.attribute(path + "/link_layer", port.link_layer);
  writer.attribute(path + "/rate", port.rate);
  unsigned next = 0;
  for (const fabric::GidEntry& entry : port.gids) {
    // Short gaps are empty slots, as in a real table. Longer gaps have no files, as in a prepared view.
    for (; next < entry.index && entry.index - next < 8; ++next)
      writer.file(path + "/gids/" + std::to_string(next), to_gid_string(fabric::Address{}));
    next = entry.index + 1;
    const std::string slot = std::to_string(entry.index);
    writer.file(path + "/gids/" + slot, to_gid_string(entry.gid));
    if (entry.type) writer.attribute(path + "/gid_attrs/types/" + slot, *entry.type);
    if (entry.ndev) writer.attribute(path + "/gid_attrs/ndevs/" + slot, *entry.ndev);
  }
}

void write_hca(Writer& writer, const fabric::Hca& hca) {
  const std::string name = file_name(hca.name);
  const std::string path = "/sys/class/infiniband/" + name;
  writer.directory(path + "/ports");
  if (hca.pci) {
    const std::string function = "/sys/devices/" + file_name(*hca.pci);
    writer.directory(function + "/net");
    writer.link(path + "/device", "../../../devices/" + file_name(*hca.pci));
    if (hca.vendor) writer.file(function + "/vendor", *hca.vendor);
    if (hca.driver) writer.link(function + "/driver", "../drivers/" + file_name(*hca.driver));
    if (hca.physfn) writer.link(function + "/physfn", "../" + file_name(*hca.physfn));
  } else {
    writer.file(path + "/parent", "eth0");
  }
  writer.file(path + "/node_guid", hca.node_guid);
  writer.file(path + "/node_type", hca.node_type);
  for (const fabric::Port& port : hca.ports)
    write_port(writer, path, port);
  if (!hca.uverbs) return;
  const std::string node = "uverbs" + std::to_string(*hca.uverbs);
  writer.directory("/sys/class/infiniband_verbs/" + node);
  writer.file("/sys/class/infiniband_verbs/" + node + "/ibdev", name);
  writer.file("/sys/class/infiniband_verbs/" + node + "/dev", "231:" + std::to_string(192 + *hca.uverbs));
  if (hca.accessible.value_or(true)) writer.file("/dev/infiniband/" + node, "");
}

void write_netdev(Writer& writer, const fabric::Netdev& netdev, std::string& addresses) {
  const std::string name = file_name(netdev.name);
  const std::string path = "/sys/class/net/" + name;
  writer.directory(path);
  const int* carrier = std::get_if<int>(&netdev.carrier);
  writer.file(path + "/carrier", carrier ? std::to_string(*carrier) : "");
  if (netdev.type) writer.file(path + "/type", std::to_string(*netdev.type));
  if (netdev.dev_port) writer.file(path + "/dev_port", std::to_string(*netdev.dev_port));
  if (netdev.master) writer.link(path + "/master", "../" + file_name(*netdev.master));
  if (netdev.pci) {
    const std::string function = "/sys/devices/" + file_name(*netdev.pci);
    writer.directory(function + "/net/" + name);
    writer.link(path + "/device", "../../../devices/" + file_name(*netdev.pci));
  }
  for (const fabric::InterfaceAddress& own : netdev.addresses)
    addresses += name + (own.address.is_ipv4() ? " inet " : " inet6 ") + own.text + "/24\n";
}

}  // namespace

void write_tree(FuzzedDataProvider& data, const fabric::Inventory& inventory, const std::string& root) {
  Writer writer(data, root);
  writer.directory("/sys/class/net");
  writer.directory("/sys/class/infiniband");
  writer.directory("/dev/infiniband");
  std::string addresses;
  for (const fabric::Netdev& netdev : inventory.netdevs)
    if (netdev.is_here()) write_netdev(writer, netdev, addresses);
  for (const fabric::Hca& hca : inventory.hcas)
    write_hca(writer, hca);
  writer.file("/addrs.txt", addresses);
}

}  // namespace fuzz
