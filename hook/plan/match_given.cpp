#include "hook/plan/match_given.hpp"

#include <algorithm>

#include "fabric/text.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

Result<const NodeHca*> hca_of(const NodeMap& node, const SpecDevice& device) {
  const auto number = fabric::uverbs_number(device.path);
  const auto found = std::find_if(node.hcas().begin(), node.hcas().end(),
                                  [&](const NodeHca& one) { return number && one.hca->uverbs == number; });
  if (found == node.hcas().end()) {
    fabric::Error error = make_error("`{}` in linux.devices belongs to no HCA of this node", device.path);
    error.hint = "rdma-hook devices lists the nodes; one that was given before a driver reload is stale";
    return error;
  }
  const std::string dev = fmt::format("{}:{}", device.major, device.minor);
  if (found->hca->uverbs_dev && *found->hca->uverbs_dev != dev) {
    fabric::Error error =
        make_error("`{}` in linux.devices is {}, on this node it is {}", device.path, dev, *found->hca->uverbs_dev);
    error.hint = "give the node under its own name";
    return error;
  }
  return &*found;
}

// Where PCIDEVICE_* names the HCA: by PCI address, netdev or name.
std::size_t place(const NodeHca& node, const std::vector<std::string>& order) {
  const auto found = std::find_if(order.begin(), order.end(), [&](const std::string& one) {
    return one == node.name() || node.hca->pci == one ||
           std::find(node.netdevs.begin(), node.netdevs.end(), one) != node.netdevs.end();
  });
  return static_cast<std::size_t>(found - order.begin());
}

}  // namespace

Result<std::vector<const NodeHca*>> hcas_of_given(const NodeMap& node, const Request& request) {
  std::vector<std::pair<std::pair<std::size_t, unsigned>, const NodeHca*>> placed;
  for (const SpecDevice& device : request.given) {
    const NodeHca* hca = TRY(hca_of(node, device));
    placed.push_back({{place(*hca, request.order), hca->rail}, hca});
  }
  std::sort(placed.begin(), placed.end(), [](const auto& left, const auto& right) { return left.first < right.first; });
  std::vector<const NodeHca*> hcas;
  for (const auto& [ignored, hca] : placed) {
    if (std::find(hcas.begin(), hcas.end(), hca) == hcas.end()) hcas.push_back(hca);
  }
  return hcas;
}

}  // namespace hook
