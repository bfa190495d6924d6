// Remedies with commands that do no harm.
#include "base/process/owner_remedy.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace {

using base::owner_remedy;

struct stat with_mode(mode_t mode) {
  struct stat status {};
  status.st_mode = mode;
  return status;
}

TEST(OwnerRemedy, HasCommandForPlacesOfRoot) {
  for (const char* path :
       {"/", "/etc", "/etc/rdma-init", "/etc/rdma-init/conf.d", "/usr/local/bin", "/opt", "/opt/rdma-init"})
    EXPECT_EQ(owner_remedy(path, with_mode(S_IFDIR | 0777)),
              std::string("run `chown root ") + path + " && chmod go-w " + path + "`");
  EXPECT_EQ(owner_remedy("/etc/rdma-init/config.json", with_mode(S_IFREG | 0666)),
            "run `chown root /etc/rdma-init/config.json && chmod go-w /etc/rdma-init/config.json`");
}

TEST(OwnerRemedy, NamesPathBelowRootOfInstallation) {
  const auto below = [](const char* path, const char* root) {
    return owner_remedy(path, with_mode(S_IFDIR | 0777), root);
  };
  const char* another = "use a path in which only root can change each directory";
  EXPECT_EQ(below("/usr", "/host"), "run `chown root /host/usr && chmod go-w /host/usr`");
  EXPECT_EQ(below("/", "/host"), another) << "it can be any directory, such as a home directory";
  EXPECT_EQ(below("/home/alice", "/host"), another);
  EXPECT_EQ(below("/usr", "/a b"), another);
}

TEST(OwnerRemedy, NamesAnotherPlaceForPlacesOfOthers) {
  for (const char* path :
       {"/tmp", "/var/tmp", "/tmp/x", "/home/alice", "/root", "/dev", "/proc", "/etc/slurm", "/opt/vendor",
        "/usr/../tmp", "/etcetera", "/usr/a b", "/usr/$(id)", "/usr/a;b", "relative", ""})
    EXPECT_EQ(owner_remedy(path, with_mode(S_IFDIR | 0777)), "use a path in which only root can change each directory")
        << path;
  EXPECT_EQ(owner_remedy("/usr/tmp", with_mode(S_IFDIR | S_ISVTX | 0777)),
            "use a path in which only root can change each directory");
  for (const mode_t type : std::initializer_list<mode_t>{S_IFCHR, S_IFBLK, S_IFIFO, S_IFLNK, S_IFSOCK})
    EXPECT_EQ(owner_remedy("/etc/rdma-init/x", with_mode(type | 0666)),
              "use a regular file that only root can change, in a directory of root");
}

}  // namespace
