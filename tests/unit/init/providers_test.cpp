// The choice of a provider's file.
#include "init/providers.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "fabric/libraries.hpp"
#include "support/inventories.hpp"
#include "support/provider_file.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace init;
using namespace test_support;

// An image with libibverbs, and HCAs of bnxt_re.
class ImageProviders : public testing::Test {
 protected:
  ImageProviders() : node_(rails(2)) {
    for (fabric::Hca& hca : node_.hcas) {
      hca.driver = "bnxt_en";
      hca.abi_version = 6;
    }
    write_file(root_ / "etc/libibverbs.d/bnxt_re.driver", "driver bnxt_re\n");
    write_file(root_ / "etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    set_verbs("/usr/lib64");
    set_range("usr/lib64/libibverbs", 1, 1);
  }

  void set_verbs(const std::string& place) {
    const std::string format = "lib%s-rdmav34.so";
    write_file(root_ / (place.substr(1) + "/libibverbs.so.1"),
               provider_library({}) + '\0' + format + '\0' + place + "/libibverbs/" + format + '\0');
  }
  void set_range(const std::string& place, unsigned min, unsigned max, unsigned abi = 34) {
    write_file(root_ / (place + "/" + fabric::provider_file("bnxt_re", abi)),
               provider_library({{"bnxt_re", min, max}}));
  }
  // Returns the provider of both HCAs.
  std::optional<fabric::VerbsProvider> provider() {
    for (fabric::Hca& hca : node_.hcas)
      hca.provider.reset();
    Providers(root_.path()).add_to(node_);
    EXPECT_EQ(node_.hcas[0].provider, node_.hcas[1].provider);
    return node_.hcas[0].provider;
  }

  static constexpr const char* kUsual = "/usr/lib64/libibverbs/libbnxt_re-rdmav34.so";
  using Found = std::optional<fabric::VerbsProvider>;
  TempDir root_;
  fabric::Inventory node_;
};

TEST_F(ImageProviders, AreFoundForHcasThatOpen) {
  EXPECT_EQ(provider(), Found({kUsual, 1, 1}));
  EXPECT_TRUE(node_.hcas[0].is_rejected());
  set_range("usr/lib64/libibverbs", 6, 8);
  EXPECT_EQ(provider(), Found({kUsual, 6, 8}));
  EXPECT_FALSE(node_.hcas[0].is_rejected());
  for (fabric::Hca& hca : node_.hcas)
    hca.driver = "unknown";
  EXPECT_EQ(provider(), std::nullopt);
  for (fabric::Hca& hca : node_.hcas) {
    hca.driver = "bnxt_en";
    hca.abi_version.reset();
  }
  EXPECT_EQ(provider(), std::nullopt);
  for (fabric::Hca& hca : node_.hcas) {
    hca.abi_version = 6;
    hca.accessible = false;
  }
  EXPECT_EQ(provider(), std::nullopt);
}

TEST_F(ImageProviders, AreReadOnce) {
  Providers providers(root_.path());
  providers.add_to(node_);
  std::filesystem::remove_all(root_ / "usr");
  node_.hcas[1].abi_version = 1;
  providers.add_to(node_);
  EXPECT_TRUE(node_.hcas[0].is_rejected());
  EXPECT_FALSE(node_.hcas[1].is_rejected());
}

TEST_F(ImageProviders, AreFoundInLibraryPaths) {
  std::filesystem::remove_all(root_ / "usr");
  set_verbs("/opt/vendor");
  write_file(root_ / "etc/ld.so.conf", "/opt/vendor\n");
  EXPECT_EQ(provider(), std::nullopt);
  set_range("opt/vendor", 1, 1);
  EXPECT_EQ(provider(), Found({"/opt/vendor/libbnxt_re-rdmav34.so", 1, 1}));
  set_range("opt/vendor/libibverbs", 7, 7);
  EXPECT_EQ(provider(), std::nullopt) << "if the first cannot be loaded, libibverbs loads the second";
  set_range("opt/vendor", 7, 7);
  EXPECT_EQ(provider(), Found({"/opt/vendor/libibverbs/libbnxt_re-rdmav34.so", 7, 7}));
}

TEST_F(ImageProviders, AreUnknownIfAnotherMayServeTheHca) {
  write_file(root_ / "etc/libibverbs.d/former.driver", "driver i40iw\ndriver cxgb3\n");
  ASSERT_TRUE(provider());
  set_range("usr/lib64", 6, 8);
  EXPECT_EQ(provider(), std::nullopt) << "a second file in the library path";
  std::filesystem::remove(root_ / "usr/lib64/libbnxt_re-rdmav34.so");
  write_file(root_ / "etc/libibverbs.d/vendor.driver", "driver /opt/vendor/libbnxt_re\n");
  EXPECT_EQ(provider(), std::nullopt) << "a driver of unknown name";
  std::filesystem::remove(root_ / "etc/libibverbs.d/vendor.driver");
  ASSERT_TRUE(provider());
  std::filesystem::remove(root_ / "etc/libibverbs.d/bnxt_re.driver");
  EXPECT_EQ(provider(), std::nullopt) << "libibverbs does not load it";
}

TEST_F(ImageProviders, AreThoseOfThePrivateAbi) {
  set_range("usr/lib64/libibverbs", 6, 8, 25);
  EXPECT_EQ(provider(), Found({kUsual, 1, 1}));
  std::filesystem::remove(root_ / kUsual);
  for (fabric::Hca& hca : node_.hcas)
    hca.abi_version = 1;
  EXPECT_EQ(provider(), std::nullopt) << "only the private ABI 25 is left";
}

TEST_F(ImageProviders, AreUnknownIfDamaged) {
  write_file(root_ / kUsual, "text");
  EXPECT_EQ(provider(), std::nullopt);
  constexpr std::uint16_t other{kThisMachine == EM_X86_64 ? EM_AARCH64 : EM_X86_64};
  write_file(root_ / kUsual, provider_library({{"bnxt_re", 1, 1}}, false, other));
  EXPECT_EQ(provider(), std::nullopt) << "libibverbs cannot load it";
}

}  // namespace
