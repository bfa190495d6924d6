// Parsers and tests of single values of the configuration. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fabric/selectors.hpp"

namespace hook {

// Returns whether the text is a valid name of an HCA, pool or network: 1 to 63 of [A-Za-z0-9_.-], but not "." and "..".
// IB_DEVICE_NAME_MAX is 64, terminating zero byte included (Linux 6.1 include/uapi/rdma/ib_user_verbs.h).
bool is_config_name(std::string_view text);
// Returns whether the text is a name of a netdev or a glob: 1 to 63 printable characters without "/", ":" and blanks.
bool is_netdev_glob(std::string_view text);
// Returns whether the text has 1 to 63 of the characters of a Kubernetes namespace (a-z 0-9 -) and of the wildcard *.
bool is_namespace_glob(std::string_view text);
// Returns whether the text is a Kubernetes extended resource DOMAIN/NAME, such as "rdma-init.io/rails". DOMAIN is a DNS
// name of at most 253 characters, not in kubernetes.io and not beginning with "requests."; NAME has at most 63
// characters (k8s.io/kubernetes, pkg/apis/core/helper, IsExtendedResourceName, 1.34).
bool is_resource_name(std::string_view text);
// Returns "15b3" for "0x15B3" and "15b3". Returns nullopt if it is not four hexadecimal digits.
std::optional<std::string> pci_id(std::string_view text);
// Returns the text in lower case, as sysfs writes PCI addresses, if it has only characters of such an address and `*`.
std::optional<std::string> pci_address_glob(std::string_view text);
// Parses an InfiniBand partition key with "0x", "0x8001". Returns nullopt for another form or for partition 0, which no
// IPoIB child can have (Linux 6.12 drivers/infiniband/ulp/ipoib/ipoib_netlink.c, ipoib_new_child_link).
std::optional<std::uint16_t> partition_key(std::string_view text);
// Returns whether the text is an absolute path without ".." and control characters.
bool is_absolute_path(std::string_view text);
// Parses the permissions of a device node, "0666" or "666". Returns nullopt for another form or more than 0777.
std::optional<std::uint32_t> permissions(std::string_view text);
// Parses "64MiB" into bytes. Accepts only KiB, MiB, GiB and TiB, because M and MB can mean 10^6 or 2^20.
std::optional<std::uint64_t> bytes_of(std::string_view text);
// Returns why a pattern such as "net%d" makes invalid names of netdevs; nullopt: it is valid. With each number up to
// 999, a name must have at most 15 bytes (IFNAMSIZ), without '/', ':' and blanks (Linux 6.1 net/core/dev.c,
// dev_valid_name).
std::optional<std::string> problem_of_netdev_pattern(std::string_view pattern);

// Requests for HCAs, in the syntax that annotations, variables and "default_devices" of config.json share.

inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxListEntries = 4096;
inline constexpr unsigned kMaxCount = 1024;

// A request: the value of the annotation rdma-init.io/devices, of the variable RDMA_VISIBLE_DEVICES, or of a substitute
// such as "default_devices".
struct HcaSelection {
  enum class Kind { kNone, kAll, kCount, kList };
  Kind kind = Kind::kNone;
  unsigned count = 0;                   // kCount: HCAs (NICs), at least 1
  fabric::SelectorList selectors = {};  // the selectors of kList
  std::string source = {};              // for messages: "annotation rdma-init.io/devices"
  friend bool operator==(const HcaSelection&, const HcaSelection&) = default;
};

// Describes the members for records (base/packed_record.hpp).
void describe(auto& members, HcaSelection& selection) {
  auto& [kind, count, selectors, source] = selection;
  members("kind", kind);
  members("count", count);
  members("selectors", selectors);
  members("source", source);
}

// Parses "all", "none", "void", "4" or "mlx5_0,rail:3". Errors name the source. A count is 1 to kMaxCount.
Result<HcaSelection> parse_selection(std::string_view text, std::string source);

// Checks the size of a value. Errors: it has more than kMaxValueBytes.
Result<void> check_size(std::string_view value, std::string_view source);

}  // namespace hook
