// Rails with planes, and the planes that NCCL would connect.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/warnings.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/request/parsers.hpp"
#include "support/inventories.hpp"
#include "support/rails.hpp"

namespace hook {
namespace {

using Strings = std::vector<std::string>;

// A card with two ports: the PFs mlx5_0 (plane 0) and mlx5_1 (plane 1), and VFs of the planes with these PCI functions.
fabric::Inventory card(const std::vector<unsigned>& planes_of_functions) {
  fabric::Inventory node = test_support::rails(2);
  node.hcas[0].pci = "0000:0c:00.0";
  node.hcas[1].pci = "0000:0c:00.1";
  for (unsigned i = 0; i < planes_of_functions.size(); ++i) {
    auto vf = test_support::hca(fmt::format("mlx5_{}", i + 2), i + 2, {test_support::infiniband_port()});
    vf.pci = fmt::format("0000:0c:{:02x}.{}", 1 + i / 8, i % 8);
    vf.physfn = node.hcas[planes_of_functions[i]].pci;
    vf.pfs = {fmt::format("mlx5_{}", planes_of_functions[i])};
    node.hcas.push_back(std::move(vf));
  }
  for (fabric::Hca& hca : node.hcas)
    hca.driver = hca.physfn ? "vf" : "pf";
  return node;
}

struct PlanesScene {
  fabric::Inventory node;
  Config config = {};
  Holdings holdings = {};
  std::string selection = "2";
  bool variables = true;

  Result<Plan> plan() const {
    Request request;
    request.selection = *parse_selection(selection, "x");
    const Candidates among(node, request, config);
    PlanInput input{.among = among, .holdings = holdings, .view_directory = "/v"};
    input.variables = variables;
    return make_plan(input);
  }
  // Returns the value of RDMA_INIT_RAILS, or the error.
  std::string reported() const {
    const auto made = plan();
    if (!made) return made.error().message;
    const auto found = made->env.find("RDMA_INIT_RAILS");
    return found == made->env.end() ? "" : found->second;
  }
  Strings warnings() const { return plan()->warnings; }
};

PlanesScene with_planes(std::vector<unsigned> planes, const std::string& rails = R"([["pf:mlx5_0", "pf:mlx5_1"]])") {
  PlanesScene scene{.node = card(planes)};
  scene.config.rails = test_support::rails_of(rails);
  scene.config.pools = {{"vfs", {{}, {}, {"vf"}, {}, {}}, {}, {}, std::nullopt}};
  return scene;
}

TEST(Planes, ChoosesOneVfOfEachPlane) {
  PlanesScene scene = with_planes({0, 0, 1, 1});
  EXPECT_EQ(scene.reported(), "mlx5_2=0.0,mlx5_4=0.1");
  scene.selection = "3";
  EXPECT_EQ(scene.reported(), "mlx5_2=0.0,mlx5_3=0.0,mlx5_4=0.1");
  scene.selection = "2";
  scene.config.rails.clear();
  EXPECT_EQ(scene.reported(), "");
  EXPECT_EQ(scene.plan()->hcas.at(1).name, "mlx5_3") << "without rails: PCI order";
}

TEST(Planes, ChoosesPlanesInPciOrder) {
  PlanesScene scene = with_planes({1, 0, 1, 0});
  EXPECT_EQ(scene.reported(), "mlx5_3=0.0,mlx5_4=0.1");
  EXPECT_EQ(scene.warnings(), Strings());
  scene.holdings["mlx5_4"] = {.exclusive_owner = "web", .others = 1};
  EXPECT_EQ(scene.reported(), "mlx5_3=0.0,mlx5_2=0.1");
  EXPECT_EQ(scene.warnings(),
            Strings{"rail 0: the PCI addresses of its HCAs are not in the order of its planes, so NCCL may connect "
                    "different planes; request a count of HCAs when more are free, or order the planes in \"rails\" by "
                    "PCI address"});
  // A container that starts again keeps its HCAs.
  scene.holdings.clear();
  for (const char* own : {"mlx5_2", "mlx5_3"})
    scene.holdings[own] = {.own = true, .own_units = 1, .exclusive_owner = {}};
  EXPECT_EQ(scene.reported(), "mlx5_3=0.0,mlx5_2=0.1");
}

TEST(Planes, SelectsByPciGuidNameAndPf) {
  PlanesScene scene = with_planes({0, 1}, R"(["guid:*99", "pci:0c:01.1", ["pf:mlx5_1", "mlx5_2"]])");
  scene.node.hcas[0].node_guid = "0c42:a103:0000:0099";
  EXPECT_EQ(scene.reported(), "mlx5_3=1,mlx5_2=2.1");
  scene.selection = "rail:2";
  EXPECT_EQ(scene.reported(), "mlx5_2=2.1") << "mlx5_1 is of this rail too, but in no pool";
  scene.config.pools.clear();
  EXPECT_EQ(scene.reported(), "mlx5_1=2.0,mlx5_2=2.1");
  scene.selection = "mlx5_0,mlx5_2";
  EXPECT_EQ(scene.reported(), "mlx5_0=0,mlx5_2=2.1");
  scene.config.rails = test_support::rails_of(R"(["mlx5_9", "mlx5_2"])");
  EXPECT_EQ(scene.reported(), "mlx5_2=1") << "an HCA without an entry has no rail to tell";
}

TEST(Planes, ReportsNoUnknownRail) {
  PlanesScene scene = with_planes({0, 1});
  scene.selection = "mlx5_2";
  scene.node.hcas[2].pfs.clear();
  EXPECT_EQ(scene.reported(), "mlx5_2=0.0") << "the PF is known by its function";
  scene.node.hcas[0].pci = "0000:ff:00.0";
  EXPECT_EQ(scene.reported(), "");
  EXPECT_EQ(scene.warnings(), Strings{"RDMA_INIT_RAILS is not set: the rail of `mlx5_2` is not known: the HCA of its "
                                      "physical function is not visible on the node"});
  scene.config.networks["n"] = {"n", Mode::kShared, "ipoib", std::nullopt};
  scene.config.pools.front().network = "n";
  scene.node.hcas[2].ports[0].netdev = "ib0";
  EXPECT_EQ(scene.reported(),
            "the rail of `mlx5_2` is not known: the HCA of its physical function is not visible on the node");
  // The number of another HCA depends on it only if that HCA follows.
  scene.config.rails = test_support::rails_of(R"(["pf:mlx5_0"])");
  scene.selection = "mlx5_3";
  scene.node.hcas[3].ports[0].netdev = "ib1";
  EXPECT_EQ(scene.reported(),
            "the rail of `mlx5_3` depends on `mlx5_2`: the HCA of its physical function is not visible on the node");
  scene.node.hcas[3].pci = "0000:0b:00.0";
  EXPECT_EQ(scene.reported(), "");
  EXPECT_EQ(scene.plan()->netdevs.at(0).rail, 1U);
  scene = with_planes({0}, R"(["guid:*99"])");
  scene.node.hcas[2].node_guid.clear();
  scene.selection = "mlx5_2";
  EXPECT_EQ(scene.warnings().back(),
            "RDMA_INIT_RAILS is not set: the rail of `mlx5_2` is not known: its GUID is not "
            "known");
}

// Returns the planes of the container's HCAs in the order of NCCL 2.29.7 and later: by PCI address.
std::vector<std::string> planes_for_nccl(const PlanesScene& scene, const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> sorted;
  for (const PlannedHca& hca : plan.hcas) {
    const fabric::Hca& known = *fabric::find_hca(scene.node, hca.name);
    sorted.emplace_back(*known.pci, known.pfs.front());
  }
  std::ranges::sort(sorted);
  std::vector<std::string> planes;
  for (const auto& [pci, plane] : sorted)
    planes.push_back(plane);
  return planes;
}

struct Measured {
  unsigned crossed = 0;
  unsigned warned = 0;    // those of a container with a warning
  unsigned possible = 0;  // with a warning although free HCAs in the right order exist
};

bool has_ascending_pair(const PlanesScene& scene) {
  bool has_first = false;
  for (const fabric::Hca& hca : scene.node.hcas) {
    if (hca.pfs.empty() || scene.holdings.contains(hca.name)) continue;
    if (has_first && hca.pfs.front() == "mlx5_1") return true;
    has_first = has_first || hca.pfs.front() == "mlx5_0";
  }
  return false;
}

// 1,000 times, two containers on two nodes get two VFs each. The VFs of a card have random PCI functions, and some are
// in use. NCCL connects the first with the first and the second with the second.
Measured measure(bool with_rails) {
  constexpr unsigned kVfs = 8;  // VFs of each plane
  constexpr unsigned kAllocations = 1000;
  std::mt19937 random(1);
  const auto node = [&] {
    std::vector<unsigned> planes;
    for (unsigned i = 0; i < 2 * kVfs; ++i)
      planes.push_back(i % 2);
    for (std::size_t i = planes.size(); i > 1; --i)
      std::swap(planes[i - 1], planes[random() % i]);
    PlanesScene scene = with_planes(planes);
    // At least two of each plane are free.
    std::vector<unsigned> free(2, kVfs);
    for (const fabric::Hca& hca : scene.node.hcas) {
      unsigned& left = free[hca.pfs == Strings{"mlx5_1"} ? 1 : 0];
      if (hca.pfs.empty() || left == 2 || random() % 2 == 0) continue;
      scene.holdings[hca.name] = {.exclusive_owner = "another", .others = 1};
      --left;
    }
    if (!with_rails) scene.config.rails.clear();
    return scene;
  };
  Measured measured;
  for (unsigned i = 0; i < kAllocations; ++i) {
    const PlanesScene scenes[] = {node(), node()};
    const Plan plans[] = {*scenes[0].plan(), *scenes[1].plan()};
    bool is_warned = false;
    for (unsigned at = 0; at < 2; ++at) {
      const bool warns = base::join(plans[at].warnings, "\n").find("planes") != std::string::npos;
      is_warned = is_warned || warns;
      if (warns && has_ascending_pair(scenes[at])) ++measured.possible;
    }
    if (planes_for_nccl(scenes[0], plans[0]) == planes_for_nccl(scenes[1], plans[1])) continue;
    ++measured.crossed;
    if (is_warned) ++measured.warned;
  }
  return measured;
}

TEST(Planes, NcclConnectsEachPlaneToItself) {
  const Measured before = measure(false);
  const Measured after = measure(true);
  std::printf(
      "of 1000 random allocations, NCCL connects different planes in %u without \"rails\", in %u with them; a "
      "warning reports %u of these\n",
      before.crossed, after.crossed, after.warned);
  // The figures of docs/rails.md.
  EXPECT_EQ(before.crossed, 746U);
  EXPECT_EQ(after.crossed, 64U);
  EXPECT_EQ(after.crossed, after.warned) << "crosses planes without a warning";
  EXPECT_EQ(after.possible, 0U) << "warns although free HCAs are in the right order";
}

}  // namespace
}  // namespace hook
