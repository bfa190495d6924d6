#include "shim/kubelet/away_hcas.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/file.hpp"
#include "fabric/pci_sysfs.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/rails/record/store.hpp"

namespace shim {
namespace {

// Reads the facts of the PCI function. Returns false if the function no longer exists.
bool read_function(const std::string& root, const std::string& address, fabric::Hca& hca) {
  const auto function = base::Directory::open(root + "/sys/bus/pci/devices/" + address);
  if (!function) return errno != ENOENT;
  hca.pci = address;
  hca.numa_node = function->read_int("numa_node");
  hca.vendor = function->read_text("vendor");
  hca.device_id = function->read_text("device");
  hca.driver = function->read_link_name("driver");
  hca.pci_path = fabric::pci::read_path(root, address);
  return true;
}

// Adds the netdev that the HCA had on the node, and the port of that netdev.
void add_netdev(const std::string& ledger, const std::string& owner, fabric::Hca& hca, fabric::Inventory& inventory) {
  if (!hook::NetworkRecordStore::has_any(ledger)) return;
  const auto store = hook::NetworkRecordStore::open(ledger);
  const auto record = store ? store->read(owner) : base::Result<std::optional<hook::NetworkRecord>>(store.error());
  if (!record || !*record) return;
  const auto& rails = (*record)->rails;
  const auto rail = std::ranges::find_if(rails, [&](const hook::RailRecord& one) { return one.rail.hca == hca.name; });
  if (rail == rails.end()) return;
  constexpr std::size_t kMac = 6;  // bytes of an Ethernet MAC address; that of IPoIB is longer
  fabric::Port port;
  port.link_layer = std::string(rail->host.mac.size() == kMac ? "Ethernet" : "InfiniBand");
  port.netdev = rail->host.name;
  hca.ports.push_back(std::move(port));
  fabric::Netdev netdev;
  netdev.name = rail->host.name;
  netdev.pci = hca.pci;
  netdev.in_this_netns = false;
  inventory.netdevs.push_back(std::move(netdev));
}

}  // namespace

void add_away_hca(const std::string& device, const BookedHca& booked, const std::string& ledger,
                  const std::string& root, fabric::Inventory& inventory) {
  fabric::Hca hca;
  hca.name = booked.name;
  const auto address = hook::pci_of_device(device);
  if (address && !read_function(root, *address, hca)) return;
  add_netdev(ledger, booked.owner, hca, inventory);
  if (!hca.vendor || !hca.device_id || !hca.driver || hca.ports.empty())
    inventory.unread.push_back(
        {fabric::Unread::Part::kPool, root + "/sys/class/infiniband/" + hca.name, ENOENT, hca.name});
  inventory.hcas.push_back(std::move(hca));
}

}  // namespace shim
