#include "hook/rails/netlink/vf.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.hpp"

namespace hook {
namespace {

using test_support::TempDir;

constexpr const char* kPf = "0000:1a:00.0";

class FindVfPlace : public testing::Test {
 protected:
  FindVfPlace() { std::filesystem::create_directories(devices_ + "/" + kPf + "/net"); }
  void netdev(const std::string& name) { std::filesystem::create_directory(devices_ + "/" + kPf + "/net/" + name); }
  void link(const std::string& name, const std::string& target) {
    std::filesystem::create_symlink(target, devices_ + "/" + kPf + "/" + name);
  }
  // "NETDEV N".
  std::string place(const std::string& vf, const std::string& pf = kPf) const {
    const auto found = find_vf_slot(temp_.path(), vf, pf);
    return found ? found->pf + " " + std::to_string(found->vf) : "none";
  }
  TempDir temp_;
  std::string devices_ = temp_ / "bus/pci/devices";
};

TEST_F(FindVfPlace, ByTheLinksOfItsFunction) {
  netdev("eth0");
  link("virtfn0", "../0000:1a:00.1");
  link("virtfn2", "../0000:1a:00.3");
  link("virtfn11", "../0000:1a:01.4");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 0");
  EXPECT_EQ(place("0000:1a:00.3"), "eth0 2");
  EXPECT_EQ(place("0000:1a:01.4"), "eth0 11");
  EXPECT_EQ(place("0000:1a:00.2"), "none") << "another function's";
  EXPECT_EQ(place("1a:00.1"), "none") << "the end of an address is no address";
  EXPECT_EQ(place(""), "none");
  EXPECT_EQ(place("0000:1a:00.1", "0000:1b:00.0"), "none") << "no such function";
}

TEST_F(FindVfPlace, OtherLinksSayNothing) {
  netdev("eth0");
  link("virtfn", "../0000:1a:00.1");
  link("virtfnx", "../0000:1a:00.1");
  link("virtfn1x", "../0000:1a:00.1");
  link("virtfn-1", "../0000:1a:00.1");
  link("physfn", "../0000:1a:00.1");
  std::filesystem::create_directory(devices_ + "/" + kPf + "/virtfn3");
  EXPECT_EQ(place("0000:1a:00.1"), "none");
  link("virtfn4", "0000:1a:00.1");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 4");
}

// Whichever the directory names first.
TEST_F(FindVfPlace, InSwitchdevModeNotANetdevThatStandsForAnother) {
  link("virtfn0", "../0000:1a:00.1");
  for (const auto& [name, port] : {std::pair("eth1", "pf0vf0\n"), {"eth2", "pf0vf1\n"}, {"eth3", "pf0sf88\n"}}) {
    netdev(name);
    test_support::write_file(devices_ + "/" + kPf + "/net/" + name + "/phys_port_name", port);
  }
  EXPECT_EQ(place("0000:1a:00.1"), "none");
  netdev("eth0");
  test_support::write_file(devices_ + "/" + kPf + "/net/eth0/phys_port_name", "p0\n");
  EXPECT_EQ(place("0000:1a:00.1"), "eth0 0");
}

TEST_F(FindVfPlace, AFunctionWithoutNetdev) {
  link("virtfn0", "../0000:1a:00.1");
  EXPECT_EQ(place("0000:1a:00.1"), "none") << "its netdev is elsewhere";
  std::filesystem::remove(devices_ + "/" + kPf + "/net");
  EXPECT_EQ(place("0000:1a:00.1"), "none") << "its driver has none";
}

}  // namespace
}  // namespace hook
