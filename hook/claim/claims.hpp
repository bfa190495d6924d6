// Prepares the claims of Kubernetes' Dynamic Resource Allocation on this node: books the HCAs that the scheduler
// allocated to a ResourceClaim, and writes the CDI file by which the runtime adds them to containers.
//
// The claim owns its grant from prepare_claim() to unprepare_claim(), whatever its containers do: no process stands for
// it. A container with the claim's CDI devices uses the HCAs through the claim (hook/ledger/grant.hpp, Owner::claims):
// its grant names them and the claim, and its end leaves them to the claim. The claim cannot end before such grants.
//
// A boot empties the ledger and /var/run/cdi together. Then the kubelet calls prepare_claim() again for each pod that
// it starts again, so no record of a claim needs to survive a boot.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/timing.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"

namespace hook {

inline constexpr const char* kClaimDirectory = "/var/run/cdi";

// Returns whether the text can be the UID of an object of Kubernetes: 1 to 63 of [a-z0-9-]. The API server makes UUIDs,
// and the UID of a mirror pod is a digest. A UID is part of the name of a file, so no other character is accepted. Each
// DNS label, such as the name of a request or device, passes too.
bool is_uid(std::string_view text);

// A device that the scheduler allocated to a claim.
struct ClaimDevice {
  std::string request;                      // name of the claim's request: a DNS label
  std::string name;                         // name of the device in the ResourceSlice: a DNS label
  std::string hca = {};                     // present name of the HCA on this node
  std::string share_id = {};                // the share of a device that several claims have; empty: none
  unsigned units = 1;                       // consumed shares; more than 1 only in mode shared-multi
  bool is_admin = false;                    // access for monitoring: gets the device nodes, and nothing is booked
  std::optional<Mode> mode = {};            // nullopt: that of the network or pool
  std::optional<std::string> network = {};  // nullopt: that of the pool
  RdmaLimits limits = {};                   // limits of each container, which can only lower those of the pool
  std::string pool = {};                    // pool of the ResourceSlice; prepare_claim() does not read it
  friend bool operator==(const ClaimDevice&, const ClaimDevice&) = default;
};

// A claim, as the API server has it, with the devices of this node's pool.
struct ClaimOfNode {
  std::string uid;    // is_uid()
  std::string space;  // namespace
  std::string name;
  std::vector<std::string> pods;  // UIDs of the pods in reservedFor; a pod that is missing gets its rails later
  std::vector<ClaimDevice> devices;
};

// Returns the path of the CDI file of a claim. directory: kClaimDirectory, or another one.
std::string claim_file(std::string_view directory, std::string_view uid);

struct ClaimSettings {
  const NodeSettings& node;                     // configuration, ledger, and the root of /sys
  std::string cdi_directory = kClaimDirectory;  // made if it is missing
};

// A device of the answer to NodePrepareResources.
struct PreparedDevice {
  std::string request;
  std::string name;
  std::string share_id;
  std::vector<std::string> cdi_names;  // "rdma-init.io/claim=uid-UID-pci-0000-3b-00-0"
  friend bool operator==(const PreparedDevice&, const PreparedDevice&) = default;
};

// Books the claim's HCAs and writes its CDI file. A repeated call for a prepared claim gives the same answer, adds pods
// that the claim has now, and writes a missing or changed CDI file again. A call that is killed or fails leaves nothing
// booked, unless the claim was prepared before: then its grant stays. Returns the devices in the order of
// ClaimOfNode::devices. The caller logs the result.
// deadline: until then, a failure that can pass by itself is tried again: another owner is about to release an HCA, a
// lock is taken, an HCA's driver is loading. Deadline(): try once.
// Errors: a text of the claim is not valid; an HCA does not exist, is in no pool, or another owner has it; its pool
// does not allow mode or network; the claim was prepared with other devices; the configuration, the node or the ledger
// cannot be read; the CDI file cannot be written. The message names the claim's object, the hint is the remedy.
Result<std::vector<PreparedDevice>> prepare_claim(const ClaimOfNode& claim, const ClaimSettings& settings,
                                                  base::Log& log, Deadline deadline);

// Returns whether a failure of these functions can pass by itself: another owner is about to end, a lock is taken, an
// HCA's driver is loading. A configuration or request that is wrong stays wrong.
bool can_pass(const Error& error);

// Removes the claim's CDI file and releases its grant. Succeeds if there is none.
// deadline: until then, waits for grants of containers that use the claim's HCAs: the runtime reports the end of a
// container to the kubelet before its grant is released.
// Errors: EBUSY, a container that may live uses an HCA of the claim: the claim keeps its grant and its CDI file, and
// the kubelet calls again; the ledger cannot be read or written.
Result<void> unprepare_claim(std::string_view uid, const ClaimSettings& settings, base::Log& log, Deadline deadline);

// A prepared claim, as its record has it.
struct ClaimOnRecord {
  std::string uid;
  std::string space;
  std::string name;
  std::vector<std::string> pods;   // UIDs of the pods that prepare_claim() got
  std::vector<std::string> hcas;   // names under which its HCAs were booked, without those for monitoring
  std::vector<std::string> users;  // labels of the grants that use HCAs through the claim now
  bool is_pending = false;         // a call is still preparing it, or was killed; it is no prepared claim then
};
// Returns the claims in the ledger, by UID. ledger: its directory. unread: receives the errors of records that cannot
// be read; such a record may be that of a claim. Errors: the ledger cannot be listed.
Result<std::vector<ClaimOnRecord>> claims_on_record(const std::string& ledger, std::vector<Error>& unread);

// Removes the CDI files of claims that have no record, which a killed prepare_claim() left. Best effort.
void sweep_claims(const ClaimSettings& settings, const base::Log& log);

}  // namespace hook
