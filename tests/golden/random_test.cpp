// Random nodes with random variables: NCCL takes exactly the ports that are reported as used, each at a GID of this
// network namespace. The order of the devices, a port that is down, and a second run with the exports of the first run
// do not change the result. RDMA_INIT_RANDOM_SEED is the first seed, RDMA_INIT_RANDOM_NODES the number of nodes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "base/text.hpp"
#include "init/decision.hpp"
#include "support/inventories.hpp"
#include "support/lines_of.hpp"

namespace {

using fabric::GidEntry;
using fabric::Inventory;
using init::Decision;
using init::PortReport;
using init::Settings;
using test_support::v1;
using test_support::v2;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  unsigned below(unsigned end) { return static_cast<unsigned>(engine_() % end); }
  bool one_in(unsigned n) { return below(n) == 0; }
  template <typename T>
  const T& of(const std::vector<T>& choices) {
    return choices[below(static_cast<unsigned>(choices.size()))];
  }
  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[below(static_cast<unsigned>(i))]);
  }

 private:
  std::mt19937 engine_;  // the same with every library, unlike std::shuffle and the distributions
};

// Returns a GID table like a rail's: one to three addresses of its own, with addresses of other containers before and
// between them.
std::vector<GidEntry> random_table(Random& random, unsigned rail, std::vector<std::string>& own) {
  const bool ipv4 = !random.one_in(6);
  const bool ipv6 = !ipv4 || random.one_in(4);
  if (ipv4) own.push_back(fmt::format("10.1.{}.1", rail));
  if (ipv4 && random.one_in(5)) own.push_back(fmt::format("10.2.{}.1", rail));
  if (ipv6) own.push_back(fmt::format("fd00:1:{:x}::1", rail));
  own.push_back(fmt::format("fe80::a:{:x}", rail));
  std::vector<std::string> all = own;
  for (unsigned left = random.below(4); left > 0; --left)
    all.push_back(random.of<std::string>({fmt::format("10.1.{}.{}", rail, 20 + left), fmt::format("10.9.0.{}", left),
                                          fmt::format("fd00:9::{:x}", left), fmt::format("fe80::b:{:x}", left)}));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (random.one_in(2)) random.shuffle(all);
  std::vector<GidEntry> table;
  unsigned index = 0;
  for (const std::string& address : all) {
    index += random.one_in(6) ? random.below(3) : 0;
    if (!random.one_in(4)) table.push_back(v1(index++, address.c_str()));
    table.push_back(v2(index++, address.c_str()));
  }
  return table;
}

Inventory random_node(Random& random) {
  Inventory node;
  node.netdevs.push_back(test_support::netdev("eth0", {"192.168.0.7/24"}));
  const unsigned count = 1 + random.below(random.one_in(20) ? 40 : 8);
  const bool infiniband = random.one_in(8);
  for (unsigned i = 0; i < count; ++i) {
    const std::string name = fmt::format("mlx5_{}", i);
    fabric::Port port;
    std::vector<std::string> own;
    if (infiniband || random.one_in(20)) {
      port = test_support::infiniband_port();
    } else {
      port = test_support::ethernet_port(random_table(random, i, own));
    }
    if (random.one_in(10)) port.state = "1: DOWN";
    if (random.one_in(8)) port.rate = "100 Gb/sec (4X EDR)";
    port.gid_tbl_len = 256;
    node.hcas.push_back(test_support::hca(name, i, {port}));
    if (random.one_in(30)) node.hcas.back().accessible = false;
    if (random.one_in(30)) {
      node.hcas.back().abi_version = 6;
      node.hcas.back().provider = {"/usr/lib64/libibverbs/libmlx5-rdmav34.so", 1, 1};
    }
    fabric::Netdev netdev = test_support::netdev(fmt::format("rail{}", i), {});
    for (const std::string& address : own)
      netdev.addresses.push_back({*fabric::parse_address(address), 24, address});
    if (random.one_in(12)) netdev.carrier = 0;
    if (random.one_in(12)) netdev.addresses.clear();
    node.netdevs.push_back(std::move(netdev));
  }
  return node;
}

Settings random_settings(Random& random) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> known = {
      {"NCCL_IB_HCA",
       {"mlx5", "=mlx5_0", "mlx5_1", "^mlx5_0", "=mlx5_0:1,mlx5_1:1", "^=mlx5_2", "rxe", "mlx5_0:1,", "",
        "=mlx5_0, mlx5_1", "mlx5_1,mlx5_2", "mlx5_0::0:0,mlx5_1:1:1:0", "=mlx5_0:0", "^mlx5_1"}},
      {"NCCL_IB_GID_INDEX", {"3", "1", "0", "-1", "300", "-4294967293", "x", ""}},
      {"NCCL_IB_ADDR_FAMILY", {"AF_INET", "AF_INET6", "inet6", ""}},
      {"NCCL_IB_ADDR_RANGE",
       {"10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", "fd00::/8", "10.1.0.0", "10.1.0.0/16,10.2.0.0/16", "10.1.0.0/16 ",
        "::ffff:10.1.0.0/112", "10.1.0.0/-1", "/16x"}},
      {"NCCL_IB_ROCE_VERSION_NUM", {"1", "2", "7"}},
      {"NCCL_IB_DISABLE", {"0", "1"}},
      {"UCX_NET_DEVICES", {"all", "mlx5_0:1", "mlx5_9:1"}},
      {"UCX_IB_GID_INDEX", {"auto", "3"}},
      {"NVSHMEM_IB_GID_INDEX", {"3", "-1"}},
      {"NVSHMEM_IB_ADDR_RANGE", {"10.1.0.0/16", "10.9.0.0/16"}},
      {"NCCL_VERSION", {"2.20.5-1", "2.21.5", "2.25.1", "2.30.7"}}};
  Settings settings;
  for (const auto& [name, values] : known)
    if (random.one_in(6)) settings[name] = {random.of(values), "environment"};
  return settings;
}

// Returns "DEVICE:PORT INDEX" of each used port, or "DEVICE:PORT".
std::set<std::string> used(const Decision& decision, bool with_index = true) {
  std::set<std::string> ports;
  for (const PortReport& port : decision.ports) {
    const int index = port.gid_index && with_index ? static_cast<int>(*port.gid_index) : -1;
    if (port.used) ports.insert(fmt::format("{}:{} {}", port.device, port.port, index));
  }
  return ports;
}

std::string value_of(const Decision& decision, const Settings& settings, const std::string& name) {
  for (const auto& [key, value] : decision.env)
    if (key == name) return value;
  const init::Setting* kept = init::find_setting(settings, name);
  return kept ? kept->value : "";
}

void expect_own_gids(const Inventory& node, const Decision& decision) {
  for (const PortReport& port : decision.ports) {
    if (!port.used || !port.gid) continue;
    const bool own = std::any_of(node.netdevs.begin(), node.netdevs.end(), [&](const fabric::Netdev& netdev) {
      return netdev.is_up() && std::any_of(netdev.addresses.begin(), netdev.addresses.end(),
                                           [&](const auto& address) { return address.address == *port.gid; });
    });
    EXPECT_TRUE(own) << port.device << " at " << *port.gid_index;
  }
}

// Compares with NCCL's rules, unless a variable that is set is reported as wrong.
void expect_what_nccl_takes(const Inventory& node, const Settings& settings, const Decision& decision) {
  if (decision.status == init::Status::kNone) return;
  for (const auto& [name, kept] : decision.kept)
    if (kept.problem) return;
  const auto list = init::nccl::parse_hca_list(value_of(decision, settings, "NCCL_IB_HCA"));
  const long index = init::nccl::parse_index(value_of(decision, settings, "NCCL_IB_GID_INDEX"));
  const auto rules = init::nccl::parse_gid_rules(value_of(decision, settings, "NCCL_IB_ADDR_FAMILY"),
                                                 value_of(decision, settings, "NCCL_IB_ADDR_RANGE"),
                                                 value_of(decision, settings, "NCCL_IB_ROCE_VERSION_NUM"));
  std::size_t number = 0;
  for (const fabric::Hca& hca : node.hcas) {
    for (const fabric::Port& port : hca.ports) {
      const PortReport& report = decision.ports.at(number++);
      const bool takes =
          port.is_active() && hca.is_accessible() && !hca.is_rejected() && list.matches(hca.name, port.number);
      if (number <= init::nccl::kMaxPorts) {
        EXPECT_EQ(report.used, takes) << report.device << ": " << report.reason;
      }
      if (!report.used || port.is_infiniband()) continue;
      const auto choice =
          index >= 0 ? init::nccl::GidChoice{static_cast<unsigned>(index)} : init::nccl::choose_gid(port, rules);
      EXPECT_EQ(choice.index, report.gid_index) << report.device;
      EXPECT_FALSE(choice.uncertain) << report.device;
    }
  }
}

// Returns true if the value is wrong and stays in effect.
bool is_kept_wrong(const Decision& decision, const std::string& name) {
  const auto kept = decision.kept.find(name);
  return kept != decision.kept.end() && kept->second.problem;
}

// A list that --override replaces selects no port that the list does not mean.
void expect_no_port_beyond_the_list(const Inventory& node, const Settings& settings, const Decision& decision) {
  const std::string value = value_of({}, settings, "NCCL_IB_HCA");
  const bool exclude = value.starts_with('^');
  const bool exact = value.find('=') != std::string::npos;
  const std::string_view list = std::string_view(value).substr(std::min(value.find_first_not_of("^="), value.size()));
  // A list that means no usable port is kept, because no better one is known.
  if (list.empty() || is_kept_wrong(decision, "NCCL_IB_HCA")) return;
  for (const PortReport& port : decision.ports) {
    bool named = false;
    for (const std::string_view entry : base::split(list, ',')) {
      const std::string_view name = base::trim(entry.substr(0, entry.find(':')));
      const bool is_device = fabric::find_hca(node, name) != nullptr;
      named |= !name.empty() && (exact || is_device ? port.device == name : port.device.starts_with(name));
    }
    EXPECT_TRUE(!port.used || named != exclude) << port.device << " is not meant by NCCL_IB_HCA=" << value;
  }
}

// The version that NCCL_VERSION names connects with the index and the rules that --override leaves.
void expect_right_for_version(const Settings& settings, const Decision& decision) {
  const auto version = init::nccl::parse_version(value_of({}, settings, "NCCL_VERSION"));
  const std::string index = value_of(decision, settings, "NCCL_IB_GID_INDEX");
  if (!version || *version >= init::nccl::kChoosesGid || decision.status == init::Status::kNone || index.empty())
    return;
  EXPECT_GE(init::nccl::parse_index(index), 0) << "NCCL before 2.21 uses " << index << " itself";
}

// UCX and NVSHMEM use the GIDs that are reported as used, or a warning reports it.
void expect_what_others_take(const Inventory& node, const Settings& settings, const Decision& decision) {
  if (decision.status == init::Status::kNone) return;
  const auto value = [&](const std::string& name) { return value_of(decision, settings, name); };
  const auto rules = init::nccl::parse_gid_rules(value("NVSHMEM_IB_ADDR_FAMILY"), value("NVSHMEM_IB_ADDR_RANGE"), "");
  const bool warns =
      base::join(test_support::lines_of(decision.warnings), "\n").find("NVSHMEM would choose") != std::string::npos;
  for (const PortReport& report : decision.ports) {
    if (!report.used || !report.gid) continue;
    const auto& gids = fabric::find_hca(node, report.device)->ports[report.port - 1].gids;
    const auto is_own = [&](std::optional<unsigned> index) {
      const auto entry =
          std::find_if(gids.begin(), gids.end(), [&](const GidEntry& gid) { return gid.index == index; });
      return entry != gids.end() && entry->is_v2() &&
             std::any_of(node.netdevs.begin(), node.netdevs.end(), [&](const fabric::Netdev& netdev) {
               return netdev.is_up() && std::any_of(netdev.addresses.begin(), netdev.addresses.end(),
                                                    [&](const auto& own) { return own.address == entry->gid; });
             });
    };
    const long ucx = init::nccl::parse_param(value("UCX_IB_GID_INDEX"), -1);
    if (value("UCX_IB_GID_INDEX") != "auto" && ucx >= 0 && !is_kept_wrong(decision, "UCX_IB_GID_INDEX")) {
      EXPECT_TRUE(is_own(static_cast<unsigned>(ucx))) << "UCX on " << report.device << " at " << ucx;
    }
    if (is_kept_wrong(decision, "NVSHMEM_IB_GID_INDEX") || warns) continue;
    const long fixed = init::nccl::parse_param(value("NVSHMEM_IB_GID_INDEX"), -1);
    const auto index =
        fixed >= 0 ? std::optional(static_cast<unsigned>(fixed))
                   : init::nccl::choose_gid(fabric::find_hca(node, report.device)->ports[report.port - 1], rules).index;
    EXPECT_TRUE(is_own(index)) << "NVSHMEM on " << report.device << " at " << index.value_or(999);
  }
}

Settings with_exports(Settings settings, const Decision& decision) {
  for (const auto& [name, value] : decision.env)
    settings[name] = {value, "environment"};
  init::mark_own(decision.mark, settings);
  return settings;
}

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [name, setting] : settings)
    text += fmt::format("{}={} ", name, setting.value);
  return text;
}

unsigned number_of(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text ? base::parse_number<unsigned>(text).value_or(otherwise) : otherwise;
}

TEST(RandomNodes, ReportsPortsAndGidsThatNcclUses) {
  const unsigned first = number_of("RDMA_INIT_RANDOM_SEED", 1);
  const unsigned count = number_of("RDMA_INIT_RANDOM_NODES", 2000);
  std::printf("seeds %u to %u\n", first, first + count - 1);
  for (unsigned seed = first; seed < first + count; ++seed) {
    Random random(seed);
    const Inventory node = random_node(random);
    const Settings settings = random.one_in(3) ? Settings() : random_settings(random);
    SCOPED_TRACE(fmt::format("RDMA_INIT_RANDOM_SEED={} RDMA_INIT_RANDOM_NODES=1, set is: {}", seed, text_of(settings)));
    init::Policy policy;
    policy.override_wrong = random.one_in(4);
    const Decision decision = init::decide(node, settings, policy);
    expect_own_gids(node, decision);
    expect_what_nccl_takes(node, settings, decision);
    expect_what_others_take(node, settings, decision);
    if (policy.override_wrong) {
      expect_no_port_beyond_the_list(node, settings, decision);
      expect_right_for_version(settings, decision);
    }

    Inventory other = node;
    random.shuffle(other.hcas);
    if (node.hcas.size() <= init::nccl::kMaxPorts) {
      EXPECT_EQ(used(init::decide(other, settings, policy)), used(decision)) << "devices in another order";
    }
    other = node;
    fabric::Port down = test_support::ethernet_port({});
    down.state = "1: DOWN";
    other.hcas.push_back(test_support::hca("mlx5_99", 99, {down}));
    const Decision with_down = init::decide(other, settings, policy);
    EXPECT_EQ(with_down.env, decision.env) << "with an additional down port";

    const Decision again = init::decide(node, with_exports(settings, decision), policy);
    // If the second run plans without the ports that the first run dropped, or plans a range, another index may serve
    // the same ports.
    const bool same =
        base::join(test_support::lines_of(decision.warnings), "\n").find("not used: ") == std::string::npos &&
        value_of(again, {}, "NCCL_IB_ADDR_RANGE").empty();
    EXPECT_EQ(used(again, same), used(decision, same))
        << "in a second run; warnings of the first: " << base::join(test_support::lines_of(decision.warnings), "; ");
    expect_own_gids(node, again);
    expect_what_nccl_takes(node, with_exports(settings, decision), again);
    for (const auto& [name, value] : again.env)
      EXPECT_TRUE(!same || value == value_of(decision, {}, name)) << name << "=" << value << " of a second run";
    EXPECT_LE(again.warnings.size(), decision.warnings.size())
        << "a second run has more warnings: " << base::join(test_support::lines_of(again.warnings), "; ")
        << "\nthe first: " << base::join(test_support::lines_of(decision.warnings), "; ");
    if (HasFailure()) return;
  }
}

}  // namespace
