// What single values of the configuration must look like. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/selectors.hpp"
#include "hook/base/result.hpp"

namespace hook {

// HCAs, pools, networks: 1 to 63 of [A-Za-z0-9_.-], but not "." and "..". IB_DEVICE_NAME_MAX is 64 with the zero
// (Linux 6.1 include/uapi/rdma/ib_user_verbs.h).
bool is_config_name(std::string_view text);
// The name of a netdev, or a glob of such: 1 to 63 printable characters without "/", ":" and blanks.
bool is_netdev_glob(std::string_view text);
// A Kubernetes namespace (RFC 1123 label), or a glob of such.
bool is_namespace_glob(std::string_view text);
// An extended resource of Kubernetes, "rdma-init.io/rails": a DNS name of at most 253 characters that is not
// kubernetes.io and not below it, and a name of at most 63 (k8s.io/kubernetes, pkg/apis/core/helper,
// IsExtendedResourceName, 1.34).
bool is_resource_name(std::string_view text);
// "0x15B3" and "15b3" are "15b3"; nullopt: not four hexadecimal digits.
std::optional<std::string> pci_id(std::string_view text);
// "0x8001": an InfiniBand partition key with "0x"; nullopt: anything else, or partition 0, which no IPoIB child may
// have (Linux 6.12 drivers/infiniband/ulp/ipoib/ipoib_netlink.c, ipoib_new_child_link).
std::optional<std::uint16_t> partition_key(std::string_view text);
// A path from the root, without ".." and control characters.
bool is_absolute_path(std::string_view text);
// "0666" or "666": permissions of a node; nullopt: anything else, or more than rwxrwxrwx.
std::optional<std::uint32_t> permissions(std::string_view text);
// "64MiB": bytes; KiB, MiB, GiB, TiB only, because M and MB mean either 10^6 or 2^20.
std::optional<std::uint64_t> bytes_of(std::string_view text);
// Why the pattern makes no names of netdevs; nullopt: it does. Names have at most 15 bytes (IFNAMSIZ), without '/', ':'
// and blanks (Linux 6.1 net/core/dev.c, dev_valid_name), for numbers up to 999.
std::optional<std::string> problem_of_netdev_pattern(std::string_view pattern);

// Which HCAs are wanted, in the words that annotations, variables and "default_devices" of config.json share.

inline constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxListEntries = 4096;
inline constexpr unsigned kMaxCount = 1024;

// The value of rdma-init.io/devices, of VISIBLE_DEVICES, or what stands for it.
struct Wish {
  enum class Kind { kNone, kAll, kCount, kList };
  Kind kind = Kind::kNone;
  unsigned count = 0;                   // kCount: HCAs (NICs), at least 1
  fabric::SelectorList selectors = {};  // kList
  std::string source = {};              // for messages: "annotation rdma-init.io/devices"
};

// "all", "none", "void", "4", "mlx5_0,rail:3". Errors name the source. A count is at least 1 and at most kMaxCount.
Result<Wish> parse_wish(std::string_view text, std::string source);

// Errors: over kMaxValueBytes.
Result<void> check_size(std::string_view value, std::string_view source);

}  // namespace hook
