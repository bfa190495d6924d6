// What a pod has already, for its next container or one that starts again: HCAs and netdevs that moved into the pod's
// network namespace are not on the node any more, whoever moved them.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/request/request.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// Adds to the node's inventory the HCAs that the owner's rails took along, read in its network namespace (a kernel
// before 5.2 cannot: they stay unknown), and gives their ports, and those of HCAs whose netdev alone moved, the names
// that the netdevs had on the node, by which config.json's pools may choose, and the addresses that these brought
// along. No rails: nothing, for one system call. Errors: the record cannot be read, the namespace is gone.
fabric::Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                                  fabric::Inventory& inventory);

// Adds the HCAs whose uverbs nodes the container was given by another (dranet, rdma-cni) which moved them into the
// owner's network namespace before: /sys/class/infiniband_verbs/uverbsN/ibdev of the node still names them (Linux 7.3,
// tried). Errors: the namespace cannot be read; those HCAs stay unknown then.
fabric::Result<void> add_given_hcas(const Request& request, const Owner& owner, const std::string& root,
                                    fabric::Inventory& inventory);

}  // namespace hook
