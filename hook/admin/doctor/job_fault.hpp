// `rdma-hook doctor --job`: the faults of a node that break every job that uses RDMA, for the Prolog of a batch system,
// which drains the node by them. Executes no program, and does not read engines or files of `install`. Reads the grants
// of the ledger, because a container can set the netdev of its HCA down.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/result.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/grant/node.hpp"
#include "hook/ledger/book.hpp"

namespace hook {

// Returns the fault of the HCAs that jobs use, with the first of its objects; nullopt if no fault is certain, or the
// configuration has no pools. Pure. The faults are: the kernel has no ib_uverbs; a device node of an HCA is missing or
// wrong; no port is ACTIVE; the node has no HCA because the RDMA module of its NIC is not loaded. A node without RDMA
// hardware has no fault. jobs: the inventory with only the HCAs of pools. hcas_known: its HCAs are all HCAs of pools,
// and the states of their ports could be read. excused: ports that are no fault, as may_be_closed_by_containers()
// returns them.
std::optional<Finding> job_fault(fabric::KernelFacts facts, const fabric::Inventory& jobs, const Config& config,
                                 bool hcas_known, const std::set<std::string>& excused = {});

// Returns whether an HCA of the node can be in the network namespace of a container, where its port can be ACTIVE: in
// exclusive mode, a NIC whose RDMA module may be loaded has no HCA here. facts: for the whole inventory. Pure.
bool may_hide_hca(const fabric::KernelFacts& facts, const fabric::Inventory& inventory);

// Returns the ports of these HCAs that a container can have set down, by the names of port_object(): the port is
// administratively down (phys_state Disabled), and its HCA is or may be granted. The port can be ACTIVE after the
// container's end, so it proves no fault of the node. A port that waits for its link (Polling) has a broken cable or
// peer, also if its HCA is granted. Pure. devices: the device of each HCA, by its name.
std::set<std::string> may_be_closed_by_containers(const fabric::Inventory& jobs, const GrantedHcas& granted,
                                                  const HcaDevices& devices);

// Reads the node and returns the result of job_fault(). A fault is read a second time after a second: a link that flaps
// and a node that udev is about to make are no faults.
// Errors: the configuration or the list of HCAs cannot be read, so a fault is unknown.
Result<std::optional<Finding>> find_job_fault(const NodeSettings& node);

// Returns "rdma: OBJECT: MESSAGE; remedy: REMEDY" in one line of printable ASCII and at most kLongestReason bytes.
inline constexpr std::size_t kLongestReason = 200;
std::string drain_reason(const Finding& fault);

}  // namespace hook
