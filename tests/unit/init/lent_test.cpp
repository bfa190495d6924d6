// The node's libraries for images that cannot open its HCAs.
#include "init/lent.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "fabric/lent_libraries.hpp"
#include "fabric/libraries.hpp"
#include "fabric/provider_names.hpp"
#include "init/providers.hpp"
#include "support/inventories.hpp"
#include "support/provider_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace init;
using namespace test_support;

std::string verbs_library(unsigned abi) {
  const std::string format = fmt::format("lib%s-rdmav{}.so", abi);
  return provider_library({}) + '\0' + format + '\0' + "/usr/lib64/libibverbs/" + format + '\0';
}

// An image, and a node that lends for bnxt_re, whose driver has version 6.
class LentLibraries : public testing::Test {
 protected:
  LentLibraries() : node_(rails(2)) {
    for (fabric::Hca& hca : node_.hcas) {
      hca.driver = "bnxt_en";
      hca.abi_version = 6;
    }
    lend("bnxt_re", 6, 8, 34);
  }

  void lend(const std::string& name, unsigned min, unsigned max, unsigned abi) {
    const std::filesystem::path lent = root_ / (fabric::kLentDirectory + 1);
    write_file(lent / "libibverbs.so.1", verbs_library(abi));
    write_file(lent / fabric::provider_file(name, abi), provider_library({{name, min, max}}));
  }
  void image(const std::string& name, unsigned min, unsigned max, unsigned abi = 34) {
    write_file(root_ / "usr/lib64/libibverbs.so.1", verbs_library(abi));
    write_file(root_ / ("etc/libibverbs.d/" + name + ".driver"), "driver " + name + "\n");
    write_file(root_ / ("usr/lib64/libibverbs/" + fabric::provider_file(name, abi)),
               provider_library({{name, min, max}}));
  }
  Lent borrowed() {
    for (fabric::Hca& hca : node_.hcas)
      hca.provider.reset();
    Providers(root_.path()).add_to(node_);
    return borrow(root_.path(), chosen_, node_);
  }

  static Variables drivers(const std::string& value) { return {{"RDMAV_DRIVERS", value}}; }
  static constexpr const char* kBroadcom = "/run/rdma-init/lib/libbnxt_re";
  TempDir root_;
  fabric::Inventory node_;
  std::optional<fabric::SelectorList> chosen_;  // --hca
};

TEST_F(LentLibraries, ServeAnImageWhoseProviderRejectsTheHca) {
  image("bnxt_re", 1, 1);
  const Lent lent = borrowed();
  EXPECT_EQ(lent.env, drivers(kBroadcom));
  EXPECT_NE(lent.note.find("uses the node's bnxt_re"), std::string::npos) << lent.note;
  EXPECT_EQ(node_.hcas[1].provider, (fabric::VerbsProvider{"/run/rdma-init/lib/libbnxt_re-rdmav34.so", 6, 8}));
  EXPECT_FALSE(node_.hcas[1].is_rejected());
}

// The drivers of all providers of rdma-core 59, each with an image and a node of matching and of other versions.
TEST_F(LentLibraries, MakeNoProviderFalselyFit) {
  for (const char* driver : {"mlx5_core", "mlx4_core", "bnxt_en", "ice", "qede", "hns3", "hfi1", "ib_qib", "ib_mthca",
                             "be2net", "rdma_rxe", "cxgb4", "efa", "siw", "mana", "erdma", "ionic", "vmw_pvrdma"}) {
    for (fabric::Hca& hca : node_.hcas)
      hca.driver = driver;
    const std::string name = fabric::provider_of(node_.hcas[0]);
    for (const bool image_fits : {false, true}) {
      for (const bool node_fits : {false, true}) {
        for (const unsigned abi : {34U, 65U}) {
          std::filesystem::remove_all(root_ / "usr");
          image(name, 1, image_fits ? 6 : 5, abi);
          lend(name, node_fits ? 6 : 7, 8, 34);
          const Lent lent = borrowed();
          const std::string what = fmt::format("{}: image {}, node {}, ABI {}", name, image_fits, node_fits, abi);
          EXPECT_EQ(lent.env.empty(), image_fits || !node_fits) << what;
          EXPECT_EQ(lent.problem.empty(), image_fits || node_fits) << what;
          EXPECT_EQ(node_.hcas[0].is_rejected(), !image_fits && !node_fits) << what;
          EXPECT_EQ(lent.env.size(), lent.env.empty() ? 0U : abi == 34 ? 1U : 2U) << what;
        }
      }
    }
  }
}

TEST_F(LentLibraries, StayUnusedIfTheImageOpensTheHca) {
  image("bnxt_re", 6, 8);
  EXPECT_TRUE(borrowed().env.empty());
  EXPECT_EQ(borrowed().problem, "");
}

TEST_F(LentLibraries, IncludeLibibverbsIfTheImageHasNoneOrAnother) {
  const Variables both = {{"RDMAV_DRIVERS", kBroadcom}, {"LD_LIBRARY_PATH", fabric::kLentDirectory}};
  EXPECT_EQ(borrowed().env, both);
  image("bnxt_re", 1, 1, 65);
  EXPECT_EQ(borrowed().env, both);
  // A libibverbs that opens an HCA is never replaced.
  node_.hcas[0].driver = "mlx5_core";
  node_.hcas[0].abi_version = 1;
  image("mlx5", 1, 1, 65);
  lend("mlx5", 1, 1, 34);
  EXPECT_TRUE(borrowed().env.empty());
  EXPECT_NE(borrowed().problem.find("do not open mlx5_1, and the image's libibverbs opens other HCAs"),
            std::string::npos)
      << borrowed().problem;
  chosen_ = *fabric::parse_selectors("^mlx5_1");
  EXPECT_EQ(borrowed().problem, "") << "an HCA that is not used needs no provider";
}

TEST_F(LentLibraries, ServeTheHcasThatTheyCan) {
  node_.hcas[0].driver = "mlx5_core";
  const Lent lent = borrowed();
  EXPECT_EQ(lent.hcas, std::vector<std::string>{"mlx5_1"});
  EXPECT_EQ(lent.env.size(), 2U);
  EXPECT_NE(lent.problem.find("do not open mlx5_0, and the node lends no provider libmlx5-rdmav34.so"),
            std::string::npos)
      << lent.problem;
}

TEST_F(LentLibraries, AreNotUsedIfTheyCannotBeLoaded) {
  image("bnxt_re", 1, 1);
  const std::filesystem::path provider = root_ / (kBroadcom + 1 + std::string("-rdmav34.so"));
  const auto size = std::filesystem::file_size(provider);
  for (const std::uintmax_t left : {size - 1, std::uintmax_t{0}}) {
    std::filesystem::resize_file(provider, left);
    EXPECT_TRUE(borrowed().env.empty()) << left;
    EXPECT_NE(borrowed().problem, "") << left;
    EXPECT_TRUE(node_.hcas[0].is_rejected()) << left;
  }
}

// With a provider of this machine, and an image whose libibverbs has the same private version and no symbols.
TEST_F(LentLibraries, NeedTheSymbolsOfTheImagesLibibverbs) {
  const fabric::Libraries here("");
  const fabric::Verbs verbs = here.verbs();
  const std::string file = verbs.abi ? fabric::provider_file("rxe", *verbs.abi) : "";
  const std::string provider = verbs.directory + "/" + file;
  if (file.empty() || !std::filesystem::exists(provider)) GTEST_SKIP() << "this machine has no provider of libibverbs";
  for (fabric::Hca& hca : node_.hcas) {
    hca.driver = "rdma_rxe";
    hca.abi_version = 2;
  }
  image("rxe", 6, 8, *verbs.abi);
  lend("rxe", 1, 2, *verbs.abi);
  std::filesystem::copy_file(provider, root_ / (fabric::kLentDirectory + 1 + ("/" + file)),
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::create_directories(root_ / "lib64");
  std::filesystem::copy_file(here.find({"libc.so.6"}).path, root_ / "lib64/libc.so.6");
  const auto as_image = [&] {
    std::filesystem::copy_file(verbs.file.path, root_ / "usr/lib64/libibverbs.so.1",
                               std::filesystem::copy_options::overwrite_existing);
  };
  EXPECT_NE(borrowed().env.size(), 1U) << "the image's libibverbs lacks symbols";
  as_image();
  EXPECT_EQ(borrowed().problem, "");
  EXPECT_EQ(borrowed().env, drivers("/run/rdma-init/lib/librxe"));
}

TEST_F(LentLibraries, AreRefusedIfTheyRejectTheHcaToo) {
  image("bnxt_re", 1, 1);
  lend("bnxt_re", 7, 8, 34);
  const Lent lent = borrowed();
  EXPECT_TRUE(lent.env.empty());
  EXPECT_NE(lent.problem.find("accepts versions 7 to 8 of the kernel's ABI, and mlx5_0 has 6"), std::string::npos)
      << lent.problem;
  EXPECT_TRUE(node_.hcas[0].is_rejected());
}

// With the C library of this machine, and its libibverbs as the node's.
TEST_F(LentLibraries, NeedTheVersionsOfTheImagesCLibrary) {
  const fabric::Libraries here("");
  const fabric::Verbs verbs = here.verbs();
  const std::string libc = here.find({"libc.so.6"}).path;
  if (verbs.file.path.empty() || libc.empty()) GTEST_SKIP() << "this machine has no libibverbs or no glibc";
  const std::filesystem::path lent = root_ / (fabric::kLentDirectory + 1);
  lend("bnxt_re", 6, 8, *verbs.abi);
  std::filesystem::copy_file(verbs.file.path, lent / "libibverbs.so.1",
                             std::filesystem::copy_options::overwrite_existing);
  const std::filesystem::path needed = root_ / (fabric::kNeededDirectory + 1);
  std::filesystem::create_directories(needed);
  for (const char* name : {"libnl-3.so.200", "libnl-route-3.so.200"})
    std::filesystem::copy_file(here.find({name}).path, needed / name);
  EXPECT_NE(borrowed().problem.find("of libc.so.6, which this image lacks (it has no glibc)"), std::string::npos)
      << borrowed().problem;
  write_file(root_ / "lib/libc.musl-x86_64.so.1", provider_library({}));
  EXPECT_NE(borrowed().problem.find("(its C library is musl)"), std::string::npos) << borrowed().problem;
  std::filesystem::create_directories(root_ / "lib64");
  std::filesystem::copy_file(libc, root_ / "lib64/libc.so.6");
  const auto path = [&] {
    const auto env = borrowed().env;
    EXPECT_EQ(borrowed().problem, "");
    return env.size() == 2 ? env[1].second : "";
  };
  EXPECT_EQ(path(), "/run/rdma-init/lib:/run/rdma-init/needed");
  // The image's own libraries are used if they serve.
  for (const char* name : {"libnl-3.so.200", "libnl-route-3.so.200"})
    std::filesystem::copy_file(here.find({name}).path, root_ / (std::string("lib64/") + name));
  EXPECT_EQ(path(), "/run/rdma-init/lib");
  // Other programs of the image may need its own library, which has versions that the node's lacks.
  std::filesystem::remove(root_ / "lib64/libnl-route-3.so.200");
  const std::filesystem::path own = root_ / "lib64/libnl-3.so.200";
  std::filesystem::copy_file(libc, own, std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(borrowed().problem.find("needs libnl-route-3.so.200, which this image lacks"), std::string::npos)
      << borrowed().problem;
  // A library that the loader rejects counts as missing.
  std::filesystem::resize_file(own, 10);
  EXPECT_EQ(path(), "/run/rdma-init/lib:/run/rdma-init/needed");
  std::filesystem::remove(needed / "libnl-3.so.200");
  EXPECT_NE(borrowed().problem.find("needs libnl-3.so.200, which this image lacks"), std::string::npos)
      << borrowed().problem;
}

TEST_F(LentLibraries, CostNothingIfTheNodeLendsNone) {
  std::filesystem::remove_all(root_ / "run");
  image("bnxt_re", 1, 1);
  EXPECT_TRUE(borrowed().env.empty());
  EXPECT_EQ(borrowed().problem, "");
}

}  // namespace
