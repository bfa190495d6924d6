#include "hook/apply/live/container_root.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "hook/apply/live/run_steps.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using fabric::UniqueFd;
using test_support::TempDir;

UniqueFd open_path(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_PATH | O_CLOEXEC));
}

// mknod needs more than uid 0: a container with all but CAP_MKNOD has that too.
bool can_mknod() {
  const TempDir directory;
  return mknod((directory / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0;
}

const MakeNode kNode{"/dev/infiniband/uverbs0", 1, 3, 0640, 12, 34, false, ""};

class ContainerRootTest : public testing::Test {
 protected:
  ContainerRootTest() { std::filesystem::create_directory(outside_ / "victim"); }

  ContainerRoot root() const { return ContainerRoot(open_path(inside_.path()), NodeFiles{}, {}); }
  std::string message(const MakeNode& node = kNode) const {
    const auto made = root().make_node(node);
    return made ? "" : made.error().message;
  }
  void expect_nothing_outside() const { EXPECT_TRUE(std::filesystem::is_empty(outside_ / "victim")); }

  TempDir inside_;
  TempDir outside_;
};

TEST_F(ContainerRootTest, OpensWithoutFollowing) {
  test_support::write_file(inside_ / "a/b/file", "x");
  std::filesystem::create_symlink("b", inside_ / "a/relative");
  std::filesystem::create_symlink(outside_.path(), inside_ / "out");
  const UniqueFd root = open_path(inside_.path());
  const struct {
    const char* path;
    int flags;
    int code;
  } rows[] = {
      {"/a/b/file", O_RDONLY, 0},
      {"//a///b/", O_PATH | O_DIRECTORY, 0},
      {"/", O_PATH | O_DIRECTORY, 0},
      {"/a/relative", O_PATH | O_DIRECTORY, ELOOP},
      {"/a/relative", O_PATH, ELOOP},
      {"/a/relative/file", O_RDONLY, ELOOP},
      {"/out", O_PATH | O_DIRECTORY, ELOOP},
      {"/out/victim", O_PATH | O_DIRECTORY, ELOOP},
      {"/a/missing", O_PATH, ENOENT},
      {"/a/b/file/x", O_PATH, ENOTDIR},
      {"/a/../a/b", O_PATH, EINVAL},
      {"/./a", O_PATH, EINVAL},
      {"a/b", O_PATH, EINVAL},
      {"", O_PATH, EINVAL},
  };
  for (const auto& row : rows) {
    for (const Resolver resolver : {Resolver::kOpenat2, Resolver::kWalk}) {
      errno = 0;
      const UniqueFd fd = open_in_root(root.get(), row.path, row.flags, resolver);
      EXPECT_EQ(fd.ok() ? 0 : errno, row.code) << row.path << (resolver == Resolver::kWalk ? " (walk)" : "");
    }
  }
}

TEST_F(ContainerRootTest, MakesNodeAndDirectories) {
  if (!can_mknod()) GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
  const mode_t before = umask(0);
  EXPECT_EQ(message(), "");
  umask(before);
  struct stat status {};
  ASSERT_EQ(lstat((inside_ / "dev/infiniband/uverbs0").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFCHR | 0640U);
  EXPECT_EQ(status.st_rdev, makedev(1, 3));
  EXPECT_EQ(status.st_uid, 12U);
  EXPECT_EQ(status.st_gid, 34U);
  ASSERT_EQ(lstat((inside_ / "dev/infiniband").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFDIR | 0755U);
  EXPECT_EQ(status.st_uid, geteuid());
}

TEST_F(ContainerRootTest, TheRightNodeIsLeftAloneAndAnotherIsAnError) {
  if (!can_mknod()) GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
  const std::string path = inside_ / "dev/infiniband/uverbs0";
  std::filesystem::create_directories(inside_ / "dev/infiniband");
  ASSERT_EQ(mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  EXPECT_EQ(message(), "");
  struct stat status {};
  ASSERT_EQ(lstat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFCHR | 0600U);
  EXPECT_EQ(status.st_uid, 0U);
  std::filesystem::remove(path);
  ASSERT_EQ(mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 5)), 0);
  EXPECT_EQ(message(), "`/dev/infiniband/uverbs0` in the container is the character device 1:5, not 1:3");
}

TEST_F(ContainerRootTest, OtherThingsAreErrors) {
  const std::string path = inside_ / "dev/infiniband/uverbs0";
  std::filesystem::create_directories(inside_ / "dev/infiniband");
  const struct {
    const char* kind;
    std::function<void()> make;
  } rows[] = {
      {"a regular file", [&] { test_support::write_file(path, ""); }},
      {"a directory", [&] { std::filesystem::create_directory(path); }},
      {"a symlink", [&] { std::filesystem::create_symlink("/dev/null", path); }},
      {"a FIFO", [&] { mkfifo(path.c_str(), 0600); }},
  };
  for (const auto& row : rows) {
    row.make();
    EXPECT_EQ(message(),
              fmt::format("`/dev/infiniband/uverbs0` in the container is {}, not the character device 1:3", row.kind));
    std::filesystem::remove(path);
  }
}

TEST_F(ContainerRootTest, SymlinkedDirectoriesAreErrors) {
  std::filesystem::create_symlink(outside_ / "victim", inside_ / "dev");
  EXPECT_EQ(message(), "cannot use `/dev/infiniband` in the container: it, or a directory above it, is a symlink");
  std::filesystem::remove(inside_ / "dev");
  std::filesystem::create_directory(inside_ / "dev");
  std::filesystem::create_symlink(outside_ / "victim", inside_ / "dev/infiniband");
  EXPECT_EQ(message(), "cannot use `/dev/infiniband` in the container: it, or a directory above it, is a symlink");
  expect_nothing_outside();
}

// The kernel forgets that at a change of the user.
TEST_F(ContainerRootTest, ActingAsTheContainersRootTheChildStillEndsWithItsParent) {
  if (geteuid() != 0) GTEST_SKIP() << "setfsuid(2) needs CAP_SETUID";
  ASSERT_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
  EXPECT_FALSE(root().bind_node(kNode, -1, {65534, 65534}));
  int signal = 0;
  EXPECT_EQ(prctl(PR_GET_PDEATHSIG, &signal), 0);
  EXPECT_EQ(signal, SIGKILL);
  prctl(PR_SET_PDEATHSIG, 0);
}

TEST_F(ContainerRootTest, MissingDestinationOfABindIsNoError) {
  EXPECT_TRUE(root().bind_directory({"/src", "/sys/class/infiniband"}, -1));
  std::filesystem::create_symlink(outside_ / "victim", inside_ / "sys");
  const auto bound = root().bind_directory({"/src", "/sys/class/infiniband"}, -1);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, ELOOP);
}

TEST(ContainerMounts, IsShared) {
  const char* const mountinfo =
      "21 1 0:20 / / rw,relatime - overlay overlay rw\n"
      "22 21 0:21 / /sys ro shared:7 - sysfs sysfs rw\n"
      "23 21 0:22 / /shared:9 rw master:7 propagate_from:3 - tmpfs shared:5 rw\n"
      "24 21 0:23 / /both rw master:7 shared:8 - tmpfs tmpfs rw\n";
  const char* const none =
      "21 1 0:20 / / rw,relatime - overlay overlay rw\n22 21 0:21 / /sys ro master:7 - sysfs s rw\n";
  const struct {
    const char* mountinfo;
    std::uint64_t id;
    bool expected;
  } rows[] = {
      {mountinfo, 21, false}, {mountinfo, 22, true}, {mountinfo, 23, false},     {mountinfo, 24, true},
      {mountinfo, 25, true},  {mountinfo, 0, true},  {none, 22, false},          {none, 25, false},
      {none, 0, false},       {"", 0, false},        {"garbage\n1\n", 1, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(is_shared(row.mountinfo, row.id), row.expected) << row.id << " of " << row.mountinfo;
  }
}

TEST(ContainerMounts, IsInBind) {
  const struct {
    std::vector<SpecMount> mounts;
    bool expected;  // of /dev/infiniband
  } rows[] = {
      {{}, false},
      {{{"/dev", false}}, false},
      {{{"/dev", true}}, true},
      {{{"/", true}}, true},
      {{{"/dev", false}, {"/dev/infiniband", true}}, true},
      {{{"/dev/infiniband", true}, {"/dev", false}}, true},
      {{{"/dev", true}, {"/dev/infiniband", false}}, false},
      {{{"/dev", false}, {"//dev/x/../infiniband/", true}}, true},
      {{{"/dev", false}, {"dev/infiniband", true}}, true},
      {{{"/dev", false}, {"/dev", true}}, true},
      {{{"/dev", true}, {"/dev", false}}, false},
      {{{"/dev", false}, {"/dev/shm", true}, {"/dev/infini", true}, {"/dev/infiniband/uverbs0", true}}, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(is_in_bind(row.mounts, "/dev/infiniband"), row.expected) << &row - rows;
  }
}

TEST(MappedRoot, Parse) {
  const struct {
    const char* uids;
    const char* gids;
    std::optional<std::pair<uid_t, gid_t>> expected;
  } rows[] = {
      {"         0     100000      65536\n", "         0     200000      65536\n", {{100000, 200000}}},
      {"         0          0 4294967295\n", "         0          0 4294967295\n", {{0, 0}}},
      {"1 100000 65536\n0 1000 1\n", "0 1000 1\n1 100000 65536\n", {{1000, 1000}}},
      {"1 100000 65536\n", "0 1000 1\n", std::nullopt},
      {"0 1000 0\n", "0 1000 1\n", std::nullopt},
      {"", "", std::nullopt},
      {"0 x 1\n", "0 1 1\n", std::nullopt},
  };
  for (const auto& row : rows) {
    const auto owner = parse_mapped_root(row.uids, row.gids);
    const auto ids = owner ? std::optional(std::pair(owner->uid, owner->gid)) : std::nullopt;
    EXPECT_EQ(ids, row.expected) << row.uids;
  }
}

// A process with a mount namespace of its own, as a runtime leaves it before it pivots: the root file system mounted
// onto itself, with a tmpfs at /dev.
class Sandbox {
 public:
  explicit Sandbox(const std::string& rootfs) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      const std::string dev = rootfs + "/dev";
      const bool made = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount(rootfs.c_str(), rootfs.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
                        mount("tmpfs", dev.c_str(), "tmpfs", 0, "mode=755") == 0;
      (void)!write(ready[1], made ? "y" : "n", 1);
      for (;;)
        pause();
    }
    char answer = 'n';
    (void)!read(ready[0], &answer, 1);
    good_ = answer == 'y';
    close(ready[0]);
    close(ready[1]);
  }
  ~Sandbox() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;
  bool good() const { return good_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  bool good_ = false;
};

class LiveContainerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(rootfs_ / "dev");
    std::filesystem::create_directories(rootfs_ / "sys/class/infiniband");
    sandbox_.emplace(rootfs_.path());
    if (!sandbox_->good() || !can_mknod()) GTEST_SKIP() << "a mount namespace and mknod(2) need CAP_SYS_ADMIN";
    spec_.root_path = rootfs_.path();
    spec_.mounts = {{"/proc", false}, {"/dev", false}};
    state_.pid = sandbox_->pid();
  }
  std::string inside(const std::string& path) const {
    return fmt::format("/proc/{}/root{}{}", state_.pid, rootfs_.path(), path);
  }
  // Why the steps are not taken; "": they are.
  static std::string refusal(const fabric::Result<LiveContainer>& container, const std::vector<Step>& steps = {kNode}) {
    const auto done = container ? run_steps(*container, steps, Engine::kRunc) : container.error();
    return done ? "" : done.error().message;
  }

  TempDir rootfs_;
  std::optional<Sandbox> sandbox_;
  ContainerSpec spec_;
  OciState state_;
};

TEST_F(LiveContainerTest, NodesAndBindsAppearInThereOnly) {
  const TempDir view;
  test_support::write_file(view / "mlx5_0", "");
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container) << container.error().message;
  const std::vector<Step> steps = {kNode, BindDirectory{view.path(), "/sys/class/infiniband"}};
  for (int i = 0; i < 2; ++i) {
    const auto done = run_steps(*container, steps, Engine::kRunc);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_TRUE(done->empty());
  }
  struct stat status {};
  ASSERT_EQ(lstat(inside("/dev/infiniband/uverbs0").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFCHR | 0640U);
  EXPECT_EQ(lstat(inside("/sys/class/infiniband/mlx5_0").c_str(), &status), 0);
  // A second mount would lie on the first.
  const std::string mounts = test_support::read_file(fmt::format("/proc/{}/mounts", state_.pid));
  const std::size_t first = mounts.find("/sys/class/infiniband ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(mounts.find("/sys/class/infiniband ", first + 1), std::string::npos);
  EXPECT_EQ(mounts.substr(mounts.find(' ', mounts.find(' ', first) + 1) + 1, 3), "ro,");
  EXPECT_TRUE(std::filesystem::is_empty(rootfs_ / "dev"));
  EXPECT_TRUE(std::filesystem::is_empty(rootfs_ / "sys/class/infiniband"));
}

TEST_F(LiveContainerTest, BindsTheNodesOfTheNode) {
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container) << container.error().message;
  MakeNode node = kNode;
  node.bind = true;
  node.source = "/dev/null";
  ASSERT_TRUE(run_steps(*container, {node}, Engine::kRunc));
  struct stat here {};
  struct stat there {};
  ASSERT_EQ(lstat("/dev/null", &here), 0);
  ASSERT_EQ(lstat(inside("/dev/infiniband/uverbs0").c_str(), &there), 0);
  EXPECT_EQ(there.st_ino, here.st_ino);
  node.source = "/dev/zero";
  EXPECT_EQ(refusal(container, {node}), "cannot bind mount `/dev/zero`: it is not the character device 1:3");
}

constexpr const char* kMountedFromTheNode =
    "cannot create anything in `/dev` of the container: it is mounted from the node";

TEST_F(LiveContainerTest, WhatIsMountedFromTheNodeIsLeftAlone) {
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container);
  const std::string dev = rootfs_ / "dev";
  const TempDir shared;
  ASSERT_TRUE(run_in_mount_namespace(container->mount_namespace.get(), [&]() -> fabric::Result<void> {
    if (mount(shared.path().c_str(), dev.c_str(), nullptr, MS_BIND, nullptr) == 0) return {};
    return fabric::sys_error(errno, "mount");
  }));
  EXPECT_EQ(refusal(container), kMountedFromTheNode);
  EXPECT_TRUE(std::filesystem::is_empty(shared.path()));
}

// An image's link /lnk -> dev takes a volume of the pod at /lnk/infiniband to /dev/infiniband: a tmpfs of the node's.
TEST_F(LiveContainerTest, VolumeBelowDevIsLeftAlone) {
  spec_.mounts.push_back({"/lnk/infiniband", true});
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container);
  ASSERT_TRUE(run_in_mount_namespace(container->mount_namespace.get(), [&]() -> fabric::Result<void> {
    const std::string target = rootfs_ / "dev/infiniband";
    if (mkdir(target.c_str(), 0755) == 0 && mount("tmpfs", target.c_str(), "tmpfs", 0, "mode=755") == 0) return {};
    return fabric::sys_error(errno, "mount");
  }));
  EXPECT_EQ(refusal(pin_container(state_, spec_)),
            "cannot create anything in `/dev/infiniband` of the container: it is mounted from the node");
  EXPECT_TRUE(std::filesystem::is_empty(inside("/dev/infiniband")));
}

// Likewise /lnk -> / and a volume at /lnk/dev, which lies on the runtime's own tmpfs.
TEST_F(LiveContainerTest, VolumeOnDevIsLeftAlone) {
  const auto before = pin_container(state_, spec_);
  ASSERT_TRUE(before);
  ASSERT_TRUE(run_in_mount_namespace(before->mount_namespace.get(), [&]() -> fabric::Result<void> {
    if (mount("tmpfs", (rootfs_ / "dev").c_str(), "tmpfs", 0, "mode=755") == 0) return {};
    return fabric::sys_error(errno, "mount");
  }));
  EXPECT_EQ(refusal(pin_container(state_, spec_)), kMountedFromTheNode);
}

TEST_F(LiveContainerTest, TmpfsThatIsABindIsLeftAlone) {
  spec_.mounts[1].is_bind = true;
  EXPECT_EQ(refusal(pin_container(state_, spec_)), kMountedFromTheNode);
  EXPECT_FALSE(std::filesystem::exists(inside("/dev/infiniband")));
}

TEST_F(LiveContainerTest, NothingIsMountedWhereItWouldAppearOnTheNode) {
  const auto before = pin_container(state_, spec_);
  ASSERT_TRUE(before);
  ASSERT_TRUE(run_in_mount_namespace(before->mount_namespace.get(), []() -> fabric::Result<void> {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr) == 0) return {};
    return fabric::sys_error(errno, "mount");
  }));
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container);
  MakeNode node = kNode;
  node.bind = true;
  node.source = "/dev/null";
  const TempDir view;
  const std::string mounts = test_support::read_file(fmt::format("/proc/{}/mounts", state_.pid));
  const struct {
    Step step;
    const char* path;
  } rows[] = {{node, "/dev/infiniband"},
              {BindDirectory{view.path(), "/sys/class/infiniband"}, "/sys/class/infiniband"}};
  for (const auto& row : rows) {
    EXPECT_EQ(refusal(container, {row.step}),
              fmt::format("`{}` in the container is shared with the node (rootfsPropagation): a "
                          "mount there would appear on the node",
                          row.path));
  }
  EXPECT_EQ(test_support::read_file(fmt::format("/proc/{}/mounts", state_.pid)), mounts);
  EXPECT_FALSE(std::filesystem::exists(inside("/dev/infiniband/uverbs0")));
}

// What is bound must not stay a peer of the node's mount: a mount below it would appear on the node.
TEST_F(LiveContainerTest, WhatIsBoundIsPrivate) {
  const TempDir peer;
  ASSERT_EQ(mount("tmpfs", peer.path().c_str(), "tmpfs", 0, "size=1m"), 0);
  EXPECT_EQ(mount(nullptr, peer.path().c_str(), nullptr, MS_SHARED, nullptr), 0);
  const auto container = pin_container(state_, spec_);
  const bool done =
      container && run_steps(*container, {BindDirectory{peer.path(), "/sys/class/infiniband"}}, Engine::kRunc);
  const std::string mountinfo = test_support::read_file(fmt::format("/proc/{}/mountinfo", state_.pid));
  EXPECT_EQ(umount2(peer.path().c_str(), MNT_DETACH), 0);
  ASSERT_TRUE(done);
  const std::size_t place = mountinfo.find("/sys/class/infiniband ");
  ASSERT_NE(place, std::string::npos);
  const std::string rest = mountinfo.substr(place, mountinfo.find('\n', place) - place);
  EXPECT_TRUE(rest.starts_with("/sys/class/infiniband ro,nosuid,nodev,noexec")) << rest;
  EXPECT_EQ(rest.find("shared:"), std::string::npos) << rest;
}

// A call that was killed between the file and the mount onto it.
TEST_F(LiveContainerTest, PlaceholderOfAnEarlierCallIsUsed) {
  const struct {
    const char* what;
    const char* content;
    mode_t mode;
    uid_t uid;
    bool linked;
    bool is_ours;
  } rows[] = {
      {"ours", "", 0, 0, false, true},         {"not empty", "x", 0, 0, false, false},
      {"readable", "", 0400, 0, false, false}, {"another's", "", 0, 7, false, false},
      {"two names", "", 0, 0, true, false},
  };
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container);
  int number = 0;
  for (const auto& row : rows) {
    MakeNode node = kNode;
    node.path = fmt::format("/dev/infiniband/uverbs{}", number++);
    node.bind = true;
    node.source = "/dev/null";
    const std::string path = inside(node.path);
    test_support::write_file(path, row.content);
    ASSERT_EQ(chmod(path.c_str(), row.mode), 0);
    ASSERT_EQ(chown(path.c_str(), row.uid, 0), 0);
    if (row.linked) std::filesystem::create_hard_link(path, path + ".link");
    const std::string message =
        fmt::format("`{}` in the container is a regular file, not the character device 1:3", node.path);
    EXPECT_EQ(refusal(container, {node}), row.is_ours ? "" : message) << row.what;
    struct stat status {};
    ASSERT_EQ(lstat(path.c_str(), &status), 0);
    EXPECT_EQ(S_ISCHR(status.st_mode), row.is_ours) << row.what;
  }
}

TEST_F(LiveContainerTest, AnotherRootIsRefused) {
  const TempDir other;
  std::filesystem::create_directory(other / "dev");
  spec_.root_path = other.path();
  EXPECT_EQ(refusal(pin_container(state_, spec_)),
            fmt::format("cannot use `{}`: it is another directory in the container's mount "
                        "namespace",
                        other.path()));
  EXPECT_TRUE(std::filesystem::is_empty(other / "dev"));
}

TEST_F(LiveContainerTest, SwappedRootIsRefused) {
  const TempDir other;
  std::filesystem::create_directory(other / "dev");
  const auto before = pin_container(state_, spec_);
  std::filesystem::rename(rootfs_.path(), rootfs_.path() + ".old");
  std::filesystem::create_symlink(other.path(), rootfs_.path());
  const auto after = pin_container(state_, spec_);
  for (const auto* container : {&before, &after}) {
    EXPECT_EQ(refusal(*container), fmt::format("cannot use `{}`: it is another directory in the container's mount "
                                               "namespace",
                                               rootfs_.path()));
  }
  std::filesystem::remove(rootfs_.path());
  std::filesystem::rename(rootfs_.path() + ".old", rootfs_.path());
  EXPECT_TRUE(std::filesystem::is_empty(other / "dev"));
}

TEST_F(LiveContainerTest, RootOfTheNodeIsRefused) {
  spec_.root_path = "/";
  EXPECT_EQ(refusal(pin_container(state_, spec_)), "cannot use `/` as a container's root: it is the root of the node");
}

TEST_F(LiveContainerTest, WithoutItsMountsItIsNoContainer) {
  spec_.mounts = {{"/proc", false}, {"/sys", false}, {"/nowhere", false}};
  EXPECT_EQ(refusal(pin_container(state_, spec_), {kNode, SetMemlock{UINT64_MAX}}),
            fmt::format("cannot use `{}`: none of the mounts of config.json is there", rootfs_.path()));
}

TEST_F(LiveContainerTest, EndedProcessIsRefused) {
  const auto container = pin_container(state_, spec_);
  ASSERT_TRUE(container);
  sandbox_.reset();
  EXPECT_EQ(check_alive(*container).error().code, ESRCH);
  EXPECT_EQ(refusal(container, {SetMemlock{1}}),
            fmt::format("cannot change the container: its process {} has ended", state_.pid));
  EXPECT_EQ(refusal(pin_container(state_, spec_)),
            fmt::format("cannot find the process {} of the container: it is gone", state_.pid));
}

TEST(PinContainer, OwnMountNamespaceIsNoContainers) {
  OciState state;
  state.pid = getpid();
  ContainerSpec spec;
  spec.root_path = "/";
  const auto container = pin_container(state, spec);
  ASSERT_FALSE(container);
  EXPECT_EQ(container.error().message,
            fmt::format("process {} shares the node's mount namespace: no container's init", getpid()));
}

TEST(RunInMountNamespace, ErrorComesBackWhole) {
  const UniqueFd own(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (geteuid() != 0) GTEST_SKIP() << "setns(2) needs CAP_SYS_ADMIN";
  const auto done = run_in_mount_namespace(own.get(), []() -> fabric::Result<void> {
    return fabric::Error{std::string(5000, 'x'), EROFS, "remedy"};
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, std::string(1999, 'x'));
  EXPECT_EQ(done.error().code, EROFS);
  EXPECT_EQ(done.error().hint, "remedy");
}

TEST(RunInMountNamespace, ChildThatDiesIsAnError) {
  const UniqueFd own(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (geteuid() != 0) GTEST_SKIP() << "setns(2) needs CAP_SYS_ADMIN";
  const auto done = run_in_mount_namespace(own.get(), []() -> fabric::Result<void> { _exit(3); });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "cannot work in the container's mount namespace: the child ended with wait status 768");
}

}  // namespace
}  // namespace hook
