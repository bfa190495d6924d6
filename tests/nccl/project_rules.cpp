// project_rules VERSION devices|file|conf|bootstrap: answers the questions of nccl_rules with the functions of
// rdma-init and rdma-ping.
#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/bootstrap.hpp"
#include "init/doctor.hpp"
#include "init/nccl_rules.hpp"
#include "init/ping/nccl_choice.hpp"
#include "init/ping/self.hpp"
#include "init/settings.hpp"
#include "questions.hpp"

namespace {

using Fields = std::vector<std::string>;
using init::nccl::Version;

init::Settings settings_of(const Fields& fields, std::size_t first, const Version& version) {
  std::vector<const char*> environment;
  for (std::size_t i = first; i < fields.size(); ++i)
    environment.push_back(fields[i].c_str());
  environment.push_back(nullptr);
  init::Settings settings;
  init::add_environment(init::ping::read_by(version, environment.data()).data(), settings);
  return settings;
}

fabric::Port port_of(unsigned number, const std::vector<questions::Slot>& table) {
  fabric::Port port;
  port.number = number;
  port.state = "4: ACTIVE";
  port.link_layer = "Ethernet";
  port.gid_tbl_len = questions::kTableLength;
  for (const questions::Slot& slot : table) {
    fabric::GidEntry entry;
    entry.index = static_cast<unsigned>(slot.index);
    std::copy(std::begin(slot.gid), std::end(slot.gid), entry.gid.bytes.begin());
    entry.type = slot.type == 'e' ? fabric::Attr<std::string>(fabric::Unreadable{EINVAL})
                                  : fabric::Attr<std::string>(slot.type == '1' ? "IB/RoCE v1" : "RoCE v2");
    if (!entry.gid.is_zero()) port.gids.push_back(entry);
  }
  return port;
}

std::string devices_with(const init::Settings& settings, const Fields& fields, const Version& version) {
  const auto table = questions::parse_table(fields[1]);
  fabric::Inventory inventory;
  for (const std::string& entry : questions::parts_of(fields[0], ',')) {
    const auto [name, ports] = questions::split_first(entry, ':');
    fabric::Hca hca;
    hca.name = name;
    hca.uverbs = static_cast<unsigned>(inventory.hcas.size());
    for (unsigned number = 1; number <= std::stoul(ports); ++number)
      hca.ports.push_back(port_of(number, table));
    inventory.hcas.push_back(std::move(hca));
  }
  const auto choice = init::ping::nccl_choice(inventory, settings, version);
  if (choice.rails.empty()) return "none";
  std::string answer;
  for (const auto& rail : choice.rails)
    answer += fmt::format("{}{}:{}", answer.empty() ? "" : " ", rail.device, rail.port);
  const auto& rail = choice.rails.front();
  // An empty slot of the table connects here, because no kernel refuses it.
  const bool connects = !rail.problem.failed() || (rail.problem.detail.starts_with("its GID table has no GID") &&
                                                   rail.gid_index < questions::kTableLength);
  if (!connects) return answer + "\tfails";
  const auto& numbers = choice.connecting;
  return answer + fmt::format("\tpkey={} index={} tc={} sl={} timeout={} retry={}", numbers.pkey_index, rail.gid_index,
                              numbers.traffic_class, numbers.service_level, numbers.timeout, numbers.retries);
}

std::string answer_devices(const Fields& fields, const Version& version) {
  return devices_with(settings_of(fields, 2, version), fields, version);
}

std::string answer_file(const Fields& fields, const Version& version) {
  const std::string path = "/etc/nccl.conf";
  const init::Settings settings = init::with_conf(settings_of(fields, 3, version), {path}, {{path, fields[2]}});
  return devices_with(init::read_by(version, settings), fields, version);
}

std::string answer_conf(const Fields& fields, const Version& version) {
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < questions::kConfFileCount; ++i)
    if (!fields[i].empty()) texts[questions::kConfFiles[i]] = fields[i];
  const init::Settings environment = settings_of(fields, questions::kConfFileCount, version);
  const auto homes = init::conf_homes(version, questions::kHomeVariable, questions::kPasswdHome);
  const init::Settings all = init::with_conf(environment, init::conf_paths(environment, homes), texts);
  std::string answer;
  for (const auto& [name, setting] : init::read_by(version, all))
    answer += (answer.empty() ? "" : "\t") + questions::escaped(name + "=" + setting.value);
  return answer;
}

std::string answer_bootstrap(const Fields& fields, const Version& version) {
  fabric::Inventory inventory;
  for (const questions::Netdev& asked : questions::parse_netdevs(fields[0])) {
    fabric::Netdev netdev;
    netdev.name = asked.name;
    netdev.ifindex = static_cast<int>(inventory.netdevs.size()) + 1;
    if (asked.state == "down") {
      netdev.carrier = fabric::Unreadable{EINVAL};
    } else {
      netdev.carrier = asked.state == "up" ? 1 : 0;
    }
    for (const questions::Address& own : asked.addresses) {
      const auto address = fabric::parse_interface_address(fmt::format("{}/{}", own.text, own.prefix));
      if (!address) continue;
      netdev.addresses.push_back(*address);
      if (own.label != netdev.name) netdev.addresses.back().label = own.label;
    }
    inventory.netdevs.push_back(std::move(netdev));
  }
  return init::bootstrap_netdev(inventory, settings_of(fields, 1, version), version).value_or("none");
}

struct Mode {
  const char* name;
  std::string (*answer)(const Fields&, const Version&);
};
constexpr Mode modes[] = {
    {"devices", answer_devices}, {"file", answer_file}, {"conf", answer_conf}, {"bootstrap", answer_bootstrap}};

}  // namespace

int main(int count, char** arguments) {
  const auto version = count == 3 ? init::nccl::parse_version(arguments[1]) : std::nullopt;
  for (const Mode& mode : modes) {
    if (!version || mode.name != std::string(arguments[2])) continue;
    std::string line;
    while (std::getline(std::cin, line))
      std::cout << mode.answer(questions::fields_of(line), *version) << "\n";
    return 0;
  }
  std::cerr << "usage: project_rules VERSION devices|file|conf|bootstrap < QUESTIONS\n";
  return 2;
}
