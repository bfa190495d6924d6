#include "hook/program/foreseen.hpp"

#include "base/json/json.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

std::string with_prefix(const RailAddress& address) {
  return fmt::format("{}/{}", fabric::to_string(address.address), address.prefix);
}

Json address_json(const RailAddress& address) {
  return {{"address", with_prefix(address)},
          {"gateway", address.gateway ? Json(fabric::to_string(*address.gateway)) : Json()}};
}

// Returns the addresses, or the program that will allocate them.
std::string addresses_text(const ForeseenRail& rail) {
  if (rail.rail.addresses.empty())
    return rail.addresses_by.empty() ? "no address" : "addresses by " + rail.addresses_by;
  std::vector<std::string> texts;
  for (const RailAddress& address : rail.rail.addresses) {
    const std::string gateway = address.gateway ? " by gateway " + fabric::to_string(*address.gateway) : "";
    texts.push_back(with_prefix(address) + gateway);
  }
  return base::join(texts, ", ");
}

}  // namespace

Json foreseen_json(const std::vector<ForeseenRail>& rails) {
  Json array = Json::array();
  for (const ForeseenRail& one : rails) {
    Json addresses = Json::array();
    for (const RailAddress& address : one.rail.addresses)
      addresses.push_back(address_json(address));
    array.push_back({{"name", one.rail.name},
                     {"network", one.network},
                     {"rail", one.rail.rail},
                     {"hca", one.rail.hca},
                     {"host", one.rail.host},
                     {"kind", to_string(one.rail.kind)},
                     {"addresses", std::move(addresses)},
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
