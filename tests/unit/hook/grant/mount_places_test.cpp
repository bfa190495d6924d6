// Mounts of copies in images with links.
#include "hook/grant/mount_places.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using test_support::TempDir;

class MountPlaces : public testing::Test {
 protected:
  MountPlaces() {
    fs::create_directories(image_ / "run");
    fs::create_directories(image_ / "var");
    fs::create_directories(image_ / "data");
  }
  void link(const std::string& target, const std::string& path) {
    fs::remove_all(image_ / path);
    fs::create_directory_symlink(target, image_ / path);
  }
  // Returns the reason with a volume at the path; "": the copies can be mounted.
  std::string with_volume(const std::string& destination, bool is_bind = true, bool known = true) const {
    const std::vector<SpecMount> mounts = {{"/proc", false}, {"/dev", false}, {destination, is_bind}};
    const auto error = cannot_mount({"/run/rdma-init/lib"}, mounts, known ? image_.path() : "");
    return error ? error->message.substr(error->message.find(": ") + 2) : "";
  }
  TempDir image_;
  const std::string volume_ = "it is in a volume of the node";
};

TEST_F(MountPlaces, AreRefusedInAVolume) {
  EXPECT_EQ(with_volume("/etc/hosts"), "");
  EXPECT_EQ(with_volume("/run"), volume_);
  EXPECT_EQ(with_volume("/run/rdma-init"), volume_);
  EXPECT_EQ(with_volume("/run/secrets"), "");
  EXPECT_EQ(with_volume("/run", false), "") << "a file system of the container";
  EXPECT_EQ(with_volume("/var/run"), "") << "this image has no link there";
  EXPECT_EQ(with_volume("/var/run", true, false), volume_) << "most images have one";
  EXPECT_EQ(with_volume("/var/runner", true, false), "");
}

TEST_F(MountPlaces, FollowTheLinksOfTheImage) {
  link("/run", "var/run");
  EXPECT_EQ(with_volume("/var/run"), volume_);
  EXPECT_EQ(with_volume("/var/run/secrets/token"), "");
  EXPECT_EQ(with_volume("/var/run/rdma-init/lib"), volume_);
  link("../run", "data/here");
  EXPECT_EQ(with_volume("/data/here"), volume_);
  link("/../../../../run", "data/here");
  EXPECT_EQ(with_volume("/data/here"), volume_) << "no link leads out of the image";
  link("/none", "data/here");
  EXPECT_EQ(with_volume("/data/here"), "a link of the image leads the mount at `/data/here` to an unknown place");
  EXPECT_EQ(with_volume("/data/here/below"),
            "a link of the image leads the mount at `/data/here/below` to an unknown place");
  link("here", "data/here");
  EXPECT_EQ(with_volume("/data/here"), "a link of the image leads the mount at `/data/here` to an unknown place");
}

TEST_F(MountPlaces, AreRefusedBehindALinkOrFile) {
  const std::string there = "the image has a link or a file there";
  link("/data", "run");
  EXPECT_EQ(with_volume("/data"), there);
  EXPECT_EQ(with_volume("/etc"), there);
  fs::remove(image_ / "run");
  EXPECT_EQ(with_volume("/etc"), "") << "the runtime makes the directory";
  fs::create_directories(image_ / "run/rdma-init");
  test_support::write_file(image_ / "run/rdma-init/lib", "x");
  EXPECT_EQ(with_volume("/etc"), there);
}

}  // namespace
}  // namespace hook
