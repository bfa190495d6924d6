// The figures of README.md, "Why not NCCL alone": NCCL without variables on the machines of fixtures/, by the rules of
// its source (init/nccl_rules.hpp). Only machines on which NCCL can use a port count.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/port_use.hpp"
#include "fabric/snapshot.hpp"
#include "init/nccl_rules.hpp"
#include "support/temp_dir.hpp"

namespace {

using base::Json;
using init::nccl::Version;

struct Machine {
  std::string name;
  fabric::Inventory inventory;
  std::map<std::string, std::optional<unsigned>> ideal;  // GID index by port, "mlx5_0:1"; nullopt: InfiniBand
};

// Returns the ports that NCCL needs, with the index of each.
std::map<std::string, std::optional<unsigned>> ideal_ports(const Json& ideal) {
  std::map<std::string, std::optional<unsigned>> ports;
  const auto text = ideal["NCCL_IB_HCA"].get<std::string>();
  for (const std::string_view part : base::split(std::string_view(text).substr(1), ',')) {
    const Json& common = ideal["NCCL_IB_GID_INDEX"];
    const Json each = ideal.value("also", Json::object()).value("per_device_gid_index", Json::object());
    const Json index = common.is_null() ? each.value(std::string(part), Json()) : common;
    ports[std::string(part)] = index.is_null() ? std::nullopt : std::optional(index.get<unsigned>());
  }
  return ports;
}

std::vector<Machine> machines() {
  std::vector<Machine> found;
  for (const auto& entry : std::filesystem::directory_iterator(FIXTURES)) {
    const std::string path = entry.path();
    constexpr std::string_view kExpect = ".expect.json";
    if (!path.ends_with(kExpect)) continue;
    const std::string base_path = path.substr(0, path.size() - kExpect.size());
    const Json ideal = Json::parse(test_support::read_file(path))["ideal"];
    if (!ideal["NCCL_IB_HCA"].is_string()) continue;
    auto inventory = fabric::parse_snapshot(test_support::read_file(base_path + ".json"));
    if (!inventory) {
      ADD_FAILURE() << path;
      continue;
    }
    found.push_back({base_path.substr(base_path.rfind('/') + 1), *inventory, ideal_ports(ideal)});
  }
  std::ranges::sort(found, {}, &Machine::name);
  return found;
}

// Returns whether NCCL uses the expected GID, or another one of this network namespace that other hosts can reach.
bool has_right_gid(const fabric::Port& port, const fabric::OwnAddresses& own, const Version& version,
                   const std::optional<unsigned>& expected) {
  if (port.is_infiniband()) return true;
  const auto index = version < init::nccl::kChoosesGid
                         ? std::optional(0U)
                         : init::nccl::choose_gid(port, {.range = {}, .version = version}).index;
  const auto use = own.use_of(port);
  return (index && index == expected) || std::ranges::any_of(use.gids, [&](const fabric::OwnGid& gid) {
           return index == gid.entry->index && !gid.own->address.is_link_local();
         });
}

struct Outcome {
  bool fails = false;        // a port that the job needs has no GID with which it connects
  bool offers_more = false;  // NCCL also has ports that lead to no rail: front-end, storage, NVSwitch management
};

Outcome without_variables(const Machine& machine, const Version& version) {
  Outcome outcome;
  const fabric::OwnAddresses own(machine.inventory);
  for (const fabric::Hca& hca : machine.inventory.hcas) {
    if (!hca.is_accessible()) continue;
    for (const fabric::Port& port : hca.ports) {
      if (port.obstacle() != fabric::PortObstacle::kNone) continue;
      const std::string name = fmt::format("{}:{}", hca.name, port.number);
      const auto ideal = machine.ideal.find(name);
      const bool is_needed = ideal != machine.ideal.end();
      outcome.offers_more |= !is_needed;
      if (is_needed) outcome.fails |= !has_right_gid(port, own, version, ideal->second);
    }
  }
  return outcome;
}

TEST(NcclAlone, ReadmeHasTheFigures) {
  const std::string readme = test_support::read_file(README);
  const auto all = machines();
  const std::array<std::pair<const char*, Version>, 3> versions = {
      {{"before 2.21", {2, 20, 5}}, {"2.21 to 2.25", {2, 25, 1}}, {"2.26 to 2.30.7", init::nccl::kNewest}}};
  for (const auto& [label, version] : versions) {
    unsigned fails = 0;
    unsigned more = 0;
    unsigned either = 0;
    std::string names;
    for (const Machine& machine : all) {
      const Outcome outcome = without_variables(machine, version);
      fails += outcome.fails ? 1 : 0;
      more += outcome.offers_more ? 1 : 0;
      either += outcome.fails || outcome.offers_more ? 1 : 0;
      names += fmt::format(" {}{}{}", machine.name, outcome.fails ? ":fails" : "", outcome.offers_more ? ":more" : "");
    }
    const std::string row = fmt::format("| {} | {} of {} | {} of {} | {} of {} |", label, fails, all.size(), more,
                                        all.size(), either, all.size());
    EXPECT_NE(readme.find(row), std::string::npos) << "README.md lacks the row\n" << row << "\nof" << names;
  }
}

}  // namespace
