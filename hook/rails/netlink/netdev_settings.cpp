#include <fcntl.h>
#include <fmt/core.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/records.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;
using base::netlink::Message;

// The flags that __dev_change_flags() accepts (net/core/dev.c). IFF_UP is left out, because links.hpp sets it.
constexpr unsigned kSettableFlags = IFF_PROMISC | IFF_ALLMULTI | IFF_NOARP | IFF_DEBUG | IFF_NOTRAILERS | IFF_DYNAMIC |
                                    IFF_MULTICAST | IFF_PORTSEL | IFF_AUTOMEDIA;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

RequestBuilder name_request(unsigned type, int ifindex, const std::string& name) {
  RequestBuilder request(type, type == RTM_NEWLINKPROP ? NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND : 0,
                         link_header(ifindex));
  const auto list = request.begin(IFLA_PROP_LIST | NLA_F_NESTED);
  request.put(IFLA_ALT_IFNAME, std::string_view(name));
  request.end(list);
  return request;
}

RequestBuilder number_request(int ifindex, const LinkNumber& number, std::uint32_t value) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  if (number.is_byte) {
    request.put(number.attribute, static_cast<std::uint8_t>(value));
  } else {
    request.put(number.attribute, value);
  }
  return request;
}

RequestBuilder flags_request(int ifindex, unsigned change, unsigned flags) {
  ifinfomsg header = link_header(ifindex);
  header.ifi_change = change;
  header.ifi_flags = flags;
  return {RTM_SETLINK, 0, header};
}

RequestBuilder bytes_request(int ifindex, unsigned attribute, Bytes bytes) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  request.put(attribute, bytes);
  return request;
}

// Makes a message that detaches the XDP program of the mode in `flags`: descriptor -1 means no program.
RequestBuilder no_xdp_request(int ifindex, std::uint32_t flags) {
  RequestBuilder request(RTM_SETLINK, 0, link_header(ifindex));
  const auto xdp = request.begin(IFLA_XDP | NLA_F_NESTED);
  request.put(IFLA_XDP_FD, std::int32_t{-1});
  request.put(IFLA_XDP_FLAGS, flags);
  request.end(xdp);
  return request;
}

// Returns the message type of ethtool netlink; 0 if the kernel does not have it. This is the only request to the
// controller of generic netlink.
Result<unsigned> find_ethtool_family(Netlink& generic) {
  const genlmsghdr header{CTRL_CMD_GETFAMILY, 1, 0};
  RequestBuilder request(GENL_ID_CTRL, 0, header);
  request.put(CTRL_ATTR_FAMILY_NAME, std::string_view(ETHTOOL_GENL_NAME));
  unsigned family = 0;
  const auto asked = generic.read(request, "find ethtool netlink", [&](const Message& answer) {
    const Attributes attributes = answer.attributes(sizeof header);
    family = base::netlink::value_of<std::uint16_t>(attributes.get(CTRL_ATTR_FAMILY_ID)).value_or(0);
  });
  if (!asked && asked.error().code != ENOENT) return asked.error();
  return family;
}

RequestBuilder features_request(unsigned family, std::uint8_t command, int ifindex) {
  RequestBuilder request(family, 0, genlmsghdr{command, ETHTOOL_GENL_VERSION, 0});
  const auto header = request.begin(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED);
  request.put(ETHTOOL_A_HEADER_DEV_INDEX, static_cast<std::uint32_t>(ifindex));
  // Compact bitsets identify features by number, as FeatureBits does. Without this flag the answer has a list of names.
  request.put(ETHTOOL_A_HEADER_FLAGS, std::uint32_t{ETHTOOL_FLAG_COMPACT_BITSETS});
  request.end(header);
  return request;
}

FeatureBits feature_bits(const Message& answer, unsigned bitset, unsigned part) {
  const Attributes attributes = answer.attributes(sizeof(genlmsghdr));
  const Bytes bytes = Attributes(attributes.get(bitset)).get(part);
  FeatureBits bits(bytes.size() / sizeof(std::uint32_t));
  if (!bits.empty()) std::memcpy(bits.data(), bytes.data(), bits.size() * sizeof bits[0]);
  return bits;
}

std::uint32_t word_of(const FeatureBits& bits, std::size_t i) {
  return i < bits.size() ? bits[i] : 0;
}

bool has_none(const FeatureBits& bits) {
  return std::ranges::all_of(bits, [](std::uint32_t word) { return word == 0; });
}

Bytes bytes_of_bits(const FeatureBits& bits) {
  return {reinterpret_cast<const std::uint8_t*>(bits.data()), bits.size() * sizeof bits[0]};
}

constexpr std::size_t kMostQueues = 4096;  // limit on reading; usually the loop ends at the first missing queue
constexpr const char* kNothing = "0";

std::string path_of(const SysfsSetting& setting, std::size_t queue) {
  return setting.queues ? fmt::format("queues/{}{}/{}", setting.queues, queue, setting.name) : setting.name;
}

std::size_t most_values(const SysfsSetting& setting) {
  return setting.queues ? kMostQueues : 1;
}

// Removes leading zeros, from "00000000,0000000c" to "c". The kernel accepts both as the same value.
std::string without_leading_zeros(std::string text) {
  text.erase(0, std::min(text.find_first_not_of("0,"), text.size()));
  return text.empty() ? kNothing : text;
}

// Reads a setting; nullopt if the netdev does not have the queue or the setting. A netdev with one queue has no
// xps_cpus.
Attr<std::optional<std::string>> read_value(const Directory& netdev, const std::string& path) {
  auto value = netdev.read(path.c_str());
  if (auto* text = std::get_if<std::string>(&value)) return std::optional(without_leading_zeros(std::move(*text)));
  const int code = std::get<Unreadable>(value).code;
  if (code == ENOENT || code == EOPNOTSUPP) return std::optional<std::string>();
  return Unreadable{code};
}

// Returns 0 or an errno.
int write_value(const Directory& netdev, const std::string& path, const std::string& value) {
  const base::UniqueFd file(::openat(netdev.fd(), path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!file.ok()) return errno;
  return ::write(file.get(), value.data(), value.size()) < 0 ? errno : 0;
}

// Restores the setting of one queue. A queue that was added since the record was written gets kNothing ("0"). Returns 0
// or an errno; nullopt if the queue exists neither now nor in the record.
std::optional<int> restore_value(const Directory& netdev, const SysfsSetting& setting, std::size_t queue,
                                 const std::vector<std::string>& before) {
  const std::string path = path_of(setting, queue);
  const auto now = read_value(netdev, path);
  const auto* const value = std::get_if<std::optional<std::string>>(&now);
  if (value && !*value && queue >= before.size()) return std::nullopt;
  const std::string& wanted = queue < before.size() ? before[queue] : kNothing;
  const bool is_same = value && *value == wanted;
  // An equal value does not prove that all NAPI instances have it, so it is written to set all of them. An error of
  // this write is ignored.
  if (is_same && !setting.is_of_napis) return 0;
  const int failed = write_value(netdev, path, wanted);
  return is_same ? 0 : failed;
}

}  // namespace

LinkSettings link_settings(unsigned ifi_flags, const Attributes& attributes) {
  LinkSettings settings;
  settings.flags = ifi_flags & kSettableFlags;
  settings.alias = attributes.text(IFLA_IFALIAS).value_or("");
  const Bytes broadcast = attributes.get(IFLA_BROADCAST);
  settings.broadcast.assign(broadcast.begin(), broadcast.end());
  each_attribute(attributes.get(IFLA_PROP_LIST), [&](unsigned type, Bytes value) {
    const std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
    if ((type & kTypeMask) == IFLA_ALT_IFNAME) settings.other_names.emplace_back(text.substr(0, text.find('\0')));
  });
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i) {
    const auto type = kLinkNumbers[i].attribute;
    if (kLinkNumbers[i].is_byte) {
      settings.numbers[i] = attributes.u8(type);
    } else {
      settings.numbers[i] = attributes.u32(type);
    }
  }
  const Attributes xdp(attributes.get(IFLA_XDP));
  for (std::size_t i = 0; i < kXdpModes.size(); ++i)
    settings.xdp[i] = xdp.u32(kXdpModes[i].attribute).value_or(0);
  return settings;
}

std::vector<LinkRepair> link_removals(int ifindex, const std::string& name, const LinkSettings& before,
                                      const LinkSettings& now) {
  std::vector<LinkRepair> repairs;
  for (const std::string& other : now.other_names) {
    if (contains(before.other_names, other)) continue;
    // The remedy has the word NAME instead of the alternative name: a container chose that name, so it must not become
    // part of a command.
    repairs.push_back({"remove a container's alternative name of",
                       fmt::format("link property del dev {} altname NAME", name),
                       name_request(RTM_DELLINKPROP, ifindex, other)});
  }
  for (std::size_t i = 0; i < kXdpModes.size(); ++i) {
    if (now.xdp[i] == 0 || now.xdp[i] == before.xdp[i]) continue;
    repairs.push_back({fmt::format("detach a container's {} program from", kXdpModes[i].name),
                       fmt::format("link set dev {} {} off", name, kXdpModes[i].name),
                       no_xdp_request(ifindex, kXdpModes[i].flag)});
  }
  return repairs;
}

std::vector<LinkRepair> link_repairs(int ifindex, const std::string& name, const LinkSettings& before,
                                     const LinkSettings& now) {
  std::vector<LinkRepair> repairs;
  if (const unsigned changed = before.flags ^ now.flags; changed != 0)
    repairs.push_back({"restore the flags of", fmt::format("link set dev {} promisc off allmulticast off", name),
                       flags_request(ifindex, changed, before.flags)});
  if (before.alias != now.alias) {
    repairs.push_back(
        {"restore the alias of", fmt::format("link set dev {} alias TEXT", name),
         bytes_request(ifindex, IFLA_IFALIAS,
                       {reinterpret_cast<const std::uint8_t*>(before.alias.data()), before.alias.size()})});
  }
  // An empty broadcast address means that it was unknown when the record was written.
  if (!before.broadcast.empty() && before.broadcast != now.broadcast)
    repairs.push_back({"restore the broadcast address of", fmt::format("link set dev {} broadcast ADDRESS", name),
                       bytes_request(ifindex, IFLA_BROADCAST, before.broadcast)});
  const auto is_changed = [&](std::size_t i) { return before.numbers[i] && before.numbers[i] != now.numbers[i]; };
  bool is_size_changed = false;
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i) {
    const LinkNumber& number = kLinkNumbers[i];
    // Restoring one size can change the sizes that follow it in kLinkNumbers, so those sizes are written again too.
    is_size_changed |= number.is_size && is_changed(i);
    if (!is_changed(i) && !(number.is_size && is_size_changed && before.numbers[i])) continue;
    repairs.push_back({fmt::format("restore {} of", number.name),
                       fmt::format("link set dev {} {} {}", name, number.name, *before.numbers[i]),
                       number_request(ifindex, number, *before.numbers[i])});
  }
  for (const std::string& other : before.other_names) {
    if (contains(now.other_names, other)) continue;
    repairs.push_back({"restore an alternative name of",
                       fmt::format("link property add dev {} altname {}", name, base::printable(other)),
                       name_request(RTM_NEWLINKPROP, ifindex, other)});
  }
  return repairs;
}

std::vector<std::string> lost_programs(const std::string& name, const LinkSettings& before, const LinkSettings& now) {
  std::vector<std::string> lost;
  for (std::size_t i = 0; i < kXdpModes.size(); ++i) {
    if (before.xdp[i] == 0 || now.xdp[i] == before.xdp[i]) continue;
    lost.push_back(fmt::format("`{}` has lost its {} program; remedy: attach it again", name, kXdpModes[i].name));
  }
  return lost;
}

std::vector<std::string> repair_link(Netlink& route, const std::string& name, std::vector<LinkRepair> repairs) {
  std::vector<std::string> refused;
  // The kinds of repair that have a warning already. A container can add thousands of alternative names, and one
  // warning for all of them is enough.
  std::set<std::string> reported;
  for (LinkRepair& repair : repairs) {
    const auto done = route.change(repair.message, fmt::format("{} `{}`", repair.what, name));
    if (done || !reported.insert(repair.what).second) continue;
    refused.push_back(fmt::format("{}; remedy: run `ip {}`", done.error().message, repair.remedy));
  }
  return refused;
}

Result<void> Ethtool::open() {
  if (is_open_) return {};
  socket_ = TRY(Netlink::open_if_known(NETLINK_GENERIC));
  if (socket_) family_ = TRY(find_ethtool_family(*socket_));
  is_open_ = true;
  return {};
}

Result<std::optional<NetdevFeatures>> Ethtool::features(int ifindex, const std::string& name) {
  using None = std::optional<NetdevFeatures>;
  TRY_VOID(open());
  if (family_ == 0) return None();
  NetdevFeatures features;
  const auto take = [&](const Message& answer) {
    features.changeable = feature_bits(answer, ETHTOOL_A_FEATURES_HW, ETHTOOL_A_BITSET_VALUE);
    features.wanted = feature_bits(answer, ETHTOOL_A_FEATURES_WANTED, ETHTOOL_A_BITSET_VALUE);
    features.active = feature_bits(answer, ETHTOOL_A_FEATURES_ACTIVE, ETHTOOL_A_BITSET_VALUE);
    // The kernel refuses changes of the NOCHANGE features, even if the driver reports them as changeable.
    const auto fixed = feature_bits(answer, ETHTOOL_A_FEATURES_NOCHANGE, ETHTOOL_A_BITSET_VALUE);
    for (std::size_t i = 0; i < features.changeable.size(); ++i)
      features.changeable[i] &= ~word_of(fixed, i);
  };
  const auto asked = socket_->read(features_request(family_, ETHTOOL_MSG_FEATURES_GET, ifindex),
                                   fmt::format("read the features of `{}`", name), take);
  if (asked) return std::optional(std::move(features));
  return asked.error().code == EOPNOTSUPP ? Result<None>(None()) : asked.error();
}

Result<void> Ethtool::restore(int ifindex, const std::string& name, const NetdevFeatures& before) {
  const NetdevFeatures now = TRY(features(ifindex, name)).value_or(NetdevFeatures());
  FeatureBits changed = before.changeable;
  // Another driver may have been bound to the netdev, so only features that were changeable and still are changeable
  // are restored.
  for (std::size_t i = 0; i < changed.size(); ++i)
    changed[i] &= word_of(now.changeable, i) & (word_of(before.wanted, i) ^ word_of(now.wanted, i));
  if (has_none(changed)) return {};
  FeatureBits wanted = changed;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] &= word_of(before.wanted, i);
  RequestBuilder request = features_request(family_, ETHTOOL_MSG_FEATURES_SET, ifindex);
  const auto bitset = request.begin(ETHTOOL_A_FEATURES_WANTED | NLA_F_NESTED);
  request.put(ETHTOOL_A_BITSET_SIZE, static_cast<std::uint32_t>(changed.size() * 32));
  request.put(ETHTOOL_A_BITSET_VALUE, bytes_of_bits(wanted));
  request.put(ETHTOOL_A_BITSET_MASK, bytes_of_bits(changed));
  request.end(bitset);
  FeatureBits refused;
  TRY_VOID(socket_->read(request, fmt::format("restore the features of `{}`", name), [&](const Message& answer) {
    refused = feature_bits(answer, ETHTOOL_A_FEATURES_WANTED, ETHTOOL_A_BITSET_MASK);
  }));
  // If a feature was requested but not active before, another feature or the driver kept it off. That it is off now is
  // then no error.
  for (std::size_t i = 0; i < refused.size(); ++i)
    refused[i] &= ~(word_of(before.wanted, i) ^ word_of(before.active, i));
  if (has_none(refused)) return {};
  return Error{fmt::format("cannot restore all features of `{}`: its driver refuses some", name), EIO};
}

SysfsSettings read_sysfs_settings(const Directory& netdev, std::string_view name, std::vector<std::string>& warnings) {
  SysfsSettings settings;
  for (std::size_t i = 0; i < kSysfsSettings.size(); ++i) {
    for (std::size_t queue = 0; queue < most_values(kSysfsSettings[i]); ++queue) {
      const std::string path = path_of(kSysfsSettings[i], queue);
      auto value = read_value(netdev, path);
      if (const auto* failed = std::get_if<Unreadable>(&value)) {
        warnings.push_back(sys_error(failed->code, "cannot read `{}` of `{}`", path, name).message +
                           ": it will not be restored");
        // The values of this setting are discarded, because an incomplete list would restore only some queues.
        settings[i].clear();
        break;
      }
      auto& text = std::get<std::optional<std::string>>(value);
      if (!text) break;
      settings[i].push_back(*std::move(text));
    }
  }
  return settings;
}

std::vector<std::string> restore_sysfs_settings(const Directory& netdev, std::string_view name,
                                                const SysfsSettings& before) {
  std::vector<std::string> refused;
  for (std::size_t i = 0; i < kSysfsSettings.size(); ++i) {
    const SysfsSetting& setting = kSysfsSettings[i];
    bool is_reported = false;
    for (std::size_t queue = 0; !before[i].empty() && queue < most_values(setting); ++queue) {
      const auto failed = restore_value(netdev, setting, queue, before[i]);
      if (!failed) break;
      // Each setting gets only one warning, even if several queues fail.
      if (*failed == 0 || is_reported) continue;
      is_reported = true;
      const std::string path = path_of(setting, queue);
      const std::string& value = queue < before[i].size() ? before[i][queue] : kNothing;
      refused.push_back(fmt::format("{}; remedy: run `echo {} > /sys/class/net/{}/{}`",
                                    sys_error(*failed, "cannot restore `{}` of `{}`", path, name).message, value, name,
                                    path));
    }
  }
  return refused;
}

// Returns true for the characters of a number or of a mask with commas, the only values that are written to sysfs.
bool is_sysfs_value(std::string_view text) {
  constexpr std::size_t kLongest = 4096;
  return !text.empty() && text.size() <= kLongest &&
         text.find_first_not_of("0123456789abcdef,") == std::string_view::npos;
}

}  // namespace hook
