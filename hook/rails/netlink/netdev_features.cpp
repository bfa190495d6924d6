#include "hook/rails/netlink/netdev_features.hpp"

#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::netlink::Attributes;
using fabric::netlink::Bytes;

// libnl-genl would be one more library for this one message.
Result<int> find_ethtool_family(Netlink& generic) {
  const genlmsghdr header{CTRL_CMD_GETFAMILY, 1, 0};
  RequestBuilder request(GENL_ID_CTRL, 0, header);
  request.put(CTRL_ATTR_FAMILY_NAME, std::string_view(ETHTOOL_GENL_NAME));
  int family = 0;
  const auto asked = generic.read(request.take(), "look for ethtool netlink", [&](const nlmsghdr* answer) {
    const Attributes attributes = to_message(answer).attributes(sizeof header);
    family = fabric::netlink::value_of<std::uint16_t>(attributes.get(CTRL_ATTR_FAMILY_ID)).value_or(0);
  });
  if (!asked && asked.error().code != ENOENT) return asked.error();
  return family;
}

RequestBuilder features_request(int family, std::uint8_t command, int ifindex) {
  RequestBuilder request(family, 0, genlmsghdr{command, ETHTOOL_GENL_VERSION, 0});
  nlattr* header = request.begin(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED);
  request.put(ETHTOOL_A_HEADER_DEV_INDEX, static_cast<std::uint32_t>(ifindex));
  request.put(ETHTOOL_A_HEADER_FLAGS, std::uint32_t{ETHTOOL_FLAG_COMPACT_BITSETS});
  request.end(header);
  return request;
}

FeatureBits feature_bits(const nlmsghdr* answer, unsigned bitset, unsigned part) {
  const Attributes attributes = to_message(answer).attributes(sizeof(genlmsghdr));
  const Bytes bytes = Attributes(attributes.get(bitset)).get(part);
  FeatureBits bits(bytes.size() / sizeof(std::uint32_t));
  if (!bits.empty()) std::memcpy(bits.data(), bytes.data(), bits.size() * sizeof bits[0]);
  return bits;
}

std::uint32_t word_of(const FeatureBits& bits, std::size_t i) {
  return i < bits.size() ? bits[i] : 0;
}

bool has_none(const FeatureBits& bits) {
  return std::all_of(bits.begin(), bits.end(), [](std::uint32_t word) { return word == 0; });
}

Bytes bytes_of_bits(const FeatureBits& bits) {
  return {reinterpret_cast<const std::uint8_t*>(bits.data()), bits.size() * sizeof bits[0]};
}

}  // namespace

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
  const auto take = [&](const nlmsghdr* answer) {
    features.changeable = feature_bits(answer, ETHTOOL_A_FEATURES_HW, ETHTOOL_A_BITSET_VALUE);
    features.wanted = feature_bits(answer, ETHTOOL_A_FEATURES_WANTED, ETHTOOL_A_BITSET_VALUE);
    features.active = feature_bits(answer, ETHTOOL_A_FEATURES_ACTIVE, ETHTOOL_A_BITSET_VALUE);
    const auto fixed = feature_bits(answer, ETHTOOL_A_FEATURES_NOCHANGE, ETHTOOL_A_BITSET_VALUE);
    for (std::size_t i = 0; i < features.changeable.size(); ++i)
      features.changeable[i] &= ~word_of(fixed, i);
  };
  const auto asked = socket_->read(features_request(family_, ETHTOOL_MSG_FEATURES_GET, ifindex).take(),
                                   fmt::format("read the features of `{}`", name), take);
  if (asked) return std::optional(std::move(features));
  return asked.error().code == EOPNOTSUPP ? Result<None>(None()) : asked.error();
}

Result<void> Ethtool::put_back(int ifindex, const std::string& name, const NetdevFeatures& before) {
  const NetdevFeatures now = TRY(features(ifindex, name)).value_or(NetdevFeatures());
  FeatureBits changed = before.changeable;
  for (std::size_t i = 0; i < changed.size(); ++i)
    changed[i] &= word_of(now.changeable, i) & (word_of(before.wanted, i) ^ word_of(now.wanted, i));
  if (has_none(changed)) return {};
  FeatureBits wanted = changed;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    wanted[i] &= word_of(before.wanted, i);
  RequestBuilder request = features_request(family_, ETHTOOL_MSG_FEATURES_SET, ifindex);
  nlattr* bitset = request.begin(ETHTOOL_A_FEATURES_WANTED | NLA_F_NESTED);
  request.put(ETHTOOL_A_BITSET_SIZE, static_cast<std::uint32_t>(changed.size() * 32));
  request.put(ETHTOOL_A_BITSET_VALUE, bytes_of_bits(wanted));
  request.put(ETHTOOL_A_BITSET_MASK, bytes_of_bits(changed));
  request.end(bitset);
  FeatureBits refused;
  TRY_VOID(
      socket_->read(request.take(), fmt::format("put back the features of `{}`", name), [&](const nlmsghdr* answer) {
        refused = feature_bits(answer, ETHTOOL_A_FEATURES_WANTED, ETHTOOL_A_BITSET_MASK);
      }));
  for (std::size_t i = 0; i < refused.size(); ++i)
    refused[i] &= ~(word_of(before.wanted, i) ^ word_of(before.active, i));
  if (has_none(refused)) return {};
  return Error{fmt::format("cannot put back all features of `{}`: its driver has not taken them", name), EIO};
}

}  // namespace hook
