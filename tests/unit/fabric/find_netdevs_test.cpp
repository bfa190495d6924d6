#include "fabric/find_netdevs.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "fabric/port_use.hpp"
#include "fabric/read_network.hpp"

namespace {

using fabric::Netdev;
using fabric::netlink::find_netdevs;

constexpr int kNoNetns = 77;
constexpr unsigned kRails = 4;

// Runs the commands with one process of ip(8).
bool ip_batch(const std::string& commands) {
  FILE* pipe = popen("ip -force -batch - 2>/dev/null", "w");
  if (!pipe) return false;
  const bool written = std::fputs(commands.c_str(), pipe) >= 0;
  return pclose(pipe) == 0 && written;
}

std::vector<Netdev> all_netdevs() {
  auto netdevs = fabric::netlink::read_netdevs();
  return netdevs ? *std::move(netdevs) : std::vector<Netdev>();
}

const Netdev* named(const std::vector<Netdev>& netdevs, const std::string& name) {
  const auto found = std::ranges::find(netdevs, name, &Netdev::name);
  return found == netdevs.end() ? nullptr : &*found;
}

// Runs the test in a new network namespace. The test returns an error text, "" for success or "cannot".
void expect_no_error_in_new_netns(const std::function<std::string()>& test) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(kNoNetns);
    const std::string error = test();
    if (error == "cannot") _exit(kNoNetns);
    if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
    _exit(error.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (result == kNoNetns)
    GTEST_SKIP() << "cannot create a network namespace with veth netdevs (needs root and iproute2)";
  EXPECT_EQ(result, 0);
}

// Returns commands that create rails, other netdevs of a node, and netdevs that are stacked on any of both. Commands
// for kinds that the kernel does not have fail, and the rest is tested.
std::string random_node(unsigned seed) {
  std::minstd_rand random(seed);
  std::string commands;
  std::vector<std::string> names;
  const auto any = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  const auto add = [&](const std::string& name, const std::string& command) {
    commands += command + "\n";
    if (any(4) != 0) commands += fmt::format("link set {} up\n", name);
    for (std::size_t left = any(3); left > 0; --left)
      commands += fmt::format("addr add 10.{}.{}.{}/24 dev {}\n", any(200), names.size(), left, name);
    if (any(3) == 0) commands += fmt::format("addr add fd00:{:x}::{:x}/64 dev {} nodad\n", names.size(), any(99), name);
    names.push_back(name);
  };
  for (unsigned i = 0; i < kRails + 6; ++i) {
    const std::string name = i < kRails ? fmt::format("rail{}", i) : fmt::format("pod{}", i);
    add(name, fmt::format("link add {} type veth peer name peer{}", name, i));
  }
  for (std::size_t i = 0; i < 10; ++i) {
    const std::string lower = names[any(names.size())];
    const std::string name = fmt::format("up{}", i);
    switch (any(5)) {
      case 0:
        add(name, fmt::format("link add {} link {} type vlan id {}", name, lower, 10 + i));
        break;
      case 1:
        add(name, fmt::format("link add {} link {} type macvlan mode bridge", name, lower));
        break;
      case 2:
        add(name, fmt::format("link add {} link {} type ipvlan", name, lower));
        break;
      case 3:
        add(name, fmt::format("link add {} type bond", name));
        commands += fmt::format("link set {} down\nlink set {} master {}\nlink set {} up\n", lower, lower, name, lower);
        break;
      default:
        add(name, fmt::format("link add {} type bridge", name));
        commands += fmt::format("link set {} master {}\n", lower, name);
    }
  }
  return commands;
}

// Returns the netdevs directly above `lower`, as the links upper_* of sysfs name them.
std::vector<std::string> direct_uppers(const std::vector<Netdev>& all, const Netdev& lower) {
  std::vector<std::string> names;
  for (const Netdev& netdev : all) {
    const bool stacked = netdev.kind != "veth" && netdev.lower_ifindex == lower.ifindex && !netdev.lower_netns_id;
    if (stacked || lower.master_ifindex == netdev.ifindex) names.push_back(netdev.name);
  }
  return names;
}

// Returns a difference between the netdevs that were found and all netdevs of the node, "" if there is none.
std::string difference(const std::vector<Netdev>& all, const std::vector<Netdev>& found, unsigned seed) {
  if (!std::ranges::is_sorted(found, {}, &Netdev::ifindex)) return "not sorted";
  for (unsigned i = 0; i < kRails; ++i) {
    const Netdev* rail = named(all, fmt::format("rail{}", i));
    for (const Netdev& netdev : all) {
      const Netdev* same = named(found, netdev.name);
      const bool stacked = fabric::is_stacked_on(all, netdev, *rail);
      if (stacked && !same) return fmt::format("seed {}: {} over {} is missing", seed, netdev.name, rail->name);
      if (!same) continue;
      if (stacked != fabric::is_stacked_on(found, *same, *rail))
        return fmt::format("seed {}: {} over {} was not recognised", seed, netdev.name, rail->name);
      Netdev expected = netdev;
      expected.slaves = same->slaves;  // the slaves among the netdevs that were found
      if (*same != expected) return fmt::format("seed {}: {} differs", seed, netdev.name);
    }
  }
  return "";
}

TEST(FindNetdevs, FindsEverythingThatIsStackedOnTheNamedNetdevs) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    expect_no_error_in_new_netns([&]() -> std::string {
      ip_batch(random_node(seed));
      auto all = all_netdevs();
      if (!named(all, "rail0")) return "cannot";
      fabric::netlink::FindNetdevs wanted;
      for (unsigned i = 0; i < kRails; ++i)
        wanted.names.push_back(fmt::format("rail{}", i));
      wanted.uppers_of = [&](const Netdev& lower) { return std::optional(direct_uppers(all, lower)); };
      // The state and the link-local addresses of a new netdev may change in between.
      auto found = find_netdevs(wanted);
      for (auto after = all_netdevs(); after != all; after = all_netdevs()) {
        all = after;
        found = find_netdevs(wanted);
      }
      if (!found) return "not found";
      if (std::ranges::any_of(*found, [](const Netdev& netdev) { return netdev.name.starts_with("peer"); }))
        return "found a netdev that is not above a rail";
      return difference(all, *found, seed);
    });
  }
}

TEST(FindNetdevs, FindsMastersAndIfindexesWithoutTheOtherNetdevs) {
  expect_no_error_in_new_netns([]() -> std::string {
    ip_batch(
        "link add rail0 type veth peer name peer0\nlink add br0 type bridge\nlink set rail0 master br0\n"
        "addr add 10.1.0.1/24 dev br0\nlink add pod1 type veth peer name pod2\naddr add 10.2.0.1/24 dev pod1\n");
    const auto all = all_netdevs();
    const Netdev* pod = named(all, "pod1");
    if (!pod || !named(all, "br0")) return "cannot";
    const auto masters = find_netdevs({.names = {"rail0", "nothing", "a-name-that-no-netdev-can-have"}});
    if (!masters || masters->size() != 2 || !named(*masters, "rail0") || !named(*masters, "br0")) return "masters";
    if (*named(*masters, "br0") != *named(all, "br0") || named(*masters, "rail0")->master != "br0") return "values";
    const auto by_index = find_netdevs({.names = {}, .ifindexes = {pod->ifindex, 9999}});
    if (!by_index || by_index->size() != 1 || by_index->front() != *pod) return "by ifindex";
    return "";
  });
}

// The netdev of the default route may be the master of a port.
TEST(FindNetdevs, FindsNetdevsAboveANetdevThatIsAlsoNamedByItsIfindex) {
  expect_no_error_in_new_netns([]() -> std::string {
    if (!ip_batch("link add rail0 type veth peer name peer0\nlink add br0 type bridge\nlink set rail0 master br0\n"
                  "link add mv1 link br0 type macvlan\naddr add 10.0.0.1/24 dev mv1\n"))
      return "cannot";
    const auto all = all_netdevs();
    const auto* const bridge = named(all, "br0");
    if (!bridge) return "cannot";
    const auto uppers = [](const Netdev& lower) -> std::optional<std::vector<std::string>> {
      if (lower.name == "rail0") return std::vector<std::string>{"br0"};
      return lower.name == "br0" ? std::vector<std::string>{"mv1"} : std::vector<std::string>();
    };
    const auto found = find_netdevs({.names = {"rail0"}, .ifindexes = {bridge->ifindex}, .uppers_of = uppers});
    if (!found) return "not found";
    for (const char* name : {"rail0", "br0", "mv1"})
      if (!named(*found, name)) return fmt::format("{} is missing", name);
    return "";
  });
}

TEST(FindNetdevs, ReadsTheAddressesOfManyNetdevsWithOneDump) {
  expect_no_error_in_new_netns([]() -> std::string {
    std::string commands;
    fabric::netlink::FindNetdevs some;
    fabric::netlink::FindNetdevs many;
    for (int i = 0; i < 40; ++i) {
      commands += fmt::format("link add a{0} type veth peer name b{0}\naddr add 10.1.{0}.1/24 dev a{0}\n", i);
      (i < 20 ? some : many).names.push_back(fmt::format("a{}", i));
      many.names.push_back(fmt::format("b{}", i));
    }
    ip_batch(commands);
    const auto all = all_netdevs();
    if (!named(all, "a39")) return "cannot";
    const auto found = find_netdevs(some);
    if (!found || found->size() != 20) return "some";
    for (const Netdev& netdev : *found)
      if (netdev != *named(all, netdev.name)) return netdev.name + " differs";
    many.names.insert(many.names.end(), some.names.begin(), some.names.end());
    return find_netdevs(many) ? "80 netdevs were not refused" : "";
  });
}

TEST(DefaultRoutes, AreThoseOfIpv4AndWithoutThemThoseOfIpv6) {
  expect_no_error_in_new_netns([]() -> std::string {
    if (!ip_batch("link set lo up\nlink add rail0 type veth peer name peer0\nlink set rail0 up\nlink set peer0 up\n"))
      return "cannot";
    const auto routes = [] {
      const auto found = fabric::netlink::read_default_routes();
      const auto named = found ? fabric::netlink::name_routes(*found, all_netdevs()) : std::vector<fabric::Route>();
      std::string text = found ? "" : found.error().message;
      for (const fabric::Route& route : named)
        text += fmt::format("{} {};", route.dst, route.dev);
      return text;
    };
    if (const auto none = routes(); !none.empty()) return "without a default route: " + none;
    if (!ip_batch("addr add fd00::1/64 dev rail0 nodad\nroute add default via fd00::2 dev rail0\n")) return "cannot";
    if (const auto six = routes(); six != "::/0 rail0;") return "with one of IPv6: " + six;
    if (!ip_batch("route add 2001:db8::/32 dev peer0\n")) return "cannot";
    if (const auto six = routes(); six != "::/0 rail0;") return "with a route to the address of the request: " + six;
    if (!ip_batch("addr add 10.0.0.1/24 dev peer0\nroute add default via 10.0.0.2\n")) return "cannot";
    if (const auto four = routes(); four != "0.0.0.0/0 peer0;") return "with one of IPv4: " + four;
    return "";
  });
}

TEST(FindNetdevs, IsUnknownIfANetdevIsFoundByAnotherNameOrItsUppersAreUnknown) {
  expect_no_error_in_new_netns([]() -> std::string {
    ip_batch("link add rail0 type veth peer name peer0\nlink property add dev rail0 altname other0\n");
    if (!named(all_netdevs(), "rail0")) return "cannot";
    // Before Linux 5.5, there are no alternative names, and the name does not exist.
    const auto other = find_netdevs({.names = {"other0"}});
    if (other && !other->empty()) return "found by its alternative name";
    const auto unknown = [](const Netdev&) { return std::optional<std::vector<std::string>>(); };
    return find_netdevs({.names = {"rail0"}, .uppers_of = unknown}) ? "unknown uppers count as none" : "";
  });
}

struct RandomNode {
  fabric::Inventory inventory;
  std::vector<fabric::Port> ports;
};

fabric::Address ipv4(unsigned last) {
  return *fabric::parse_address(fmt::format("10.0.{}.{}", last / 250, last % 250 + 1));
}

// Returns netdevs in any stack, and ports whose GIDs are addresses of netdevs or of other namespaces.
RandomNode random_inventory(unsigned seed) {
  std::minstd_rand random(seed);
  const auto any = [&](std::size_t count) {
    return static_cast<int>(std::uniform_int_distribution<std::size_t>(0, count - 1)(random));
  };
  constexpr const char* kKinds[] = {"vlan", "macvlan", "bond", "bridge", "veth"};
  RandomNode node;
  auto& netdevs = node.inventory.netdevs;
  for (int i = 1; i <= 12; ++i) {
    Netdev netdev;
    netdev.name = fmt::format("n{}", i);
    netdev.ifindex = i;
    netdev.type = 1;
    netdev.in_this_netns = true;
    netdev.operstate = "up";
    netdev.carrier = any(5) == 0 ? 0 : 1;
    if (i > 4) netdev.kind = kKinds[any(5)];
    if (netdev.kind == "vlan" || netdev.kind == "macvlan") netdev.lower_ifindex = 1 + any(static_cast<std::size_t>(i));
    if (any(3) == 0 && i < 12) netdev.master_ifindex = i + 1 + any(static_cast<std::size_t>(12 - i));
    for (int left = any(3); left > 0; --left)
      netdev.addresses.push_back({ipv4(static_cast<unsigned>(i * 8 + left)), 24, ""});
    netdevs.push_back(netdev);
  }
  fabric::netlink::fill_masters(netdevs);
  for (int i = 1; i <= 4; ++i) {
    fabric::Port port;
    port.state = "4: ACTIVE";
    port.link_layer = "Ethernet";
    if (any(6) != 0) port.netdev = fmt::format("n{}", i);
    for (unsigned slot = 0; slot < 6; ++slot)
      port.gids.push_back({slot, ipv4(8 + static_cast<unsigned>(any(100))), any(3) ? "RoCE v2" : "IB/RoCE v1", {}});
    node.ports.push_back(port);
  }
  return node;
}

// Returns the ports' netdevs and their masters, as find_netdevs() without uppers does.
std::vector<Netdev> with_masters(const RandomNode& node) {
  std::vector<Netdev> part;
  for (const Netdev& netdev : node.inventory.netdevs) {
    const bool wanted =
        std::ranges::any_of(node.ports, [&](const fabric::Port& port) { return port.netdev == netdev.name; }) ||
        std::ranges::any_of(part, [&](const Netdev& slave) { return slave.master_ifindex == netdev.ifindex; });
    if (wanted) part.push_back(netdev);
  }
  return part;
}

// read_node() reads all netdevs only if a port is not usable by a part of them.
TEST(FindNetdevs, APortThatIsUsableByAPartOfTheNetdevsIsUsableByAll) {
  unsigned usable = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    const RandomNode node = random_inventory(seed);
    fabric::Inventory part;
    part.netdevs = with_masters(node);
    const fabric::OwnAddresses by_part(part);
    const fabric::OwnAddresses by_all(node.inventory);
    for (const fabric::Port& port : node.ports) {
      if (!by_part.use_of(port).usable()) continue;
      ++usable;
      EXPECT_TRUE(by_all.use_of(port).usable()) << "seed " << seed;
    }
  }
  EXPECT_GT(usable, 500U);
}

}  // namespace
