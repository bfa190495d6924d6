#include "hook/program/foreseen.hpp"

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/rails/address/pool.hpp"

namespace hook {
namespace {

std::string with_prefix(const RailAddress& address) {
  return fmt::format("{}/{}", fabric::to_string(address.address), address.prefix);
}

Json address_json(const RailAddress& address) {
  return {{"address", with_prefix(address)},
          {"gateway", address.gateway ? Json(fabric::to_string(*address.gateway)) : Json()}};
}

std::string by_gateway(const std::optional<fabric::Address>& gateway) {
  return gateway ? " by gateway " + fabric::to_string(*gateway) : "";
}

Json range_json(const AddressRange& range) {
  return {{"range", to_string(range)},
          {"prefix", range.prefix},
          {"gateway", range.gateway ? Json(fabric::to_string(*range.gateway)) : Json()}};
}

// Returns the addresses, the ranges of which the rail will get one each, or the program that will allocate them.
std::string addresses_text(const ForeseenRail& rail) {
  if (rail.rail.addresses.empty() && rail.ranges.empty())
    return rail.addresses_by.empty() ? "no address" : "addresses by " + rail.addresses_by;
  std::vector<std::string> texts;
  for (const AddressRange& range : rail.ranges)
    texts.push_back(fmt::format("an address of {}/{}{}", to_string(range), range.prefix, by_gateway(range.gateway)));
  for (const RailAddress& address : rail.rail.addresses)
    texts.push_back(with_prefix(address) + by_gateway(address.gateway));
  return base::join(texts, ", ");
}

}  // namespace

Json foreseen_json(const std::vector<ForeseenRail>& rails) {
  Json array = Json::array();
  for (const ForeseenRail& one : rails) {
    Json addresses = Json::array();
    for (const RailAddress& address : one.rail.addresses)
      addresses.push_back(address_json(address));
    Json ranges = Json::array();
    for (const AddressRange& range : one.ranges)
      ranges.push_back(range_json(range));
    array.push_back({{"name", one.rail.name},
                     {"network", one.network},
                     {"rail", one.rail.rail},
                     {"hca", one.rail.hca},
                     {"host", one.rail.host},
                     {"kind", to_string(one.rail.kind)},
                     {"addresses", std::move(addresses)},
                     {"ranges", std::move(ranges)},
                     {"addresses_by", one.addresses_by.empty() ? Json() : Json(one.addresses_by)},
                     {"table", one.rail.table ? Json(*one.rail.table) : Json()}});
  }
  return array;
}

std::string foreseen_text(const std::vector<ForeseenRail>& rails) {
  std::string text;
  for (const ForeseenRail& one : rails) {
    const std::string table = one.rail.table ? fmt::format("table {}", *one.rail.table) : "main table";
    const std::string line = fmt::format("{}  {} of {}, network {}, {}, {}", one.rail.name, to_string(one.rail.kind),
                                         one.rail.host, one.network, addresses_text(one), table);
    text += fmt::format("{:<11} {}\n", "rail", base::one_line(line));
  }
  return text;
}

}  // namespace hook
