// The steps that change a live container, and their effect below its root.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "fabric/lent_libraries.hpp"
#include "hook/apply/live/container_root.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using base::UniqueFd;
using namespace test_support;

UniqueFd open_path(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_PATH | O_CLOEXEC));
}

// mknod(2) needs more than uid 0: a container without CAP_MKNOD has uid 0 too.
bool can_mknod() {
  const TempDir directory;
  return mknod((directory / "null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0;
}

struct stat stat_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
  return status;
}

const MakeNode kNode{"/dev/infiniband/uverbs0", 1, 3, 0640, 12, 34, false, ""};

class ContainerRootTest : public testing::Test {
 protected:
  ContainerRootTest() { fs::create_directory(outside_ / "victim"); }

  ContainerRoot root() const { return ContainerRoot(open_path(inside_.path()), NodeFiles{}, {}); }
  std::string message() const { return error_message(root().make_node(kNode)); }

  TempDir inside_;
  const std::string path_ = inside_ / "dev/infiniband/uverbs0";
  TempDir outside_;
};

TEST_F(ContainerRootTest, RefusesSymlinks) {
  write_file(inside_ / "a/b/file", "x");
  fs::create_symlink("b", inside_ / "a/relative");
  fs::create_symlink(outside_.path(), inside_ / "out");
  const UniqueFd root = open_path(inside_.path());
  const std::tuple<const char*, int, int> rows[] = {
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
  for (const auto& [path, flags, code] : rows) {
    for (const Resolver resolver : {Resolver::kOpenat2, Resolver::kWalk}) {
      errno = 0;
      const UniqueFd fd = open_in_root(root.get(), path, flags, resolver);
      EXPECT_EQ(fd.ok() ? 0 : errno, code) << path << (resolver == Resolver::kWalk ? " (walk)" : "");
    }
  }
}

TEST_F(ContainerRootTest, MakesNodeAndDirectories) {
  if (!can_mknod()) GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
  const mode_t before = umask(0);
  EXPECT_EQ(message(), "");
  umask(before);
  const struct stat node = stat_of(path_);
  EXPECT_EQ(node.st_mode, S_IFCHR | 0640U);
  EXPECT_EQ(node.st_rdev, makedev(1, 3));
  EXPECT_EQ(node.st_uid, 12U);
  EXPECT_EQ(node.st_gid, 34U);
  const struct stat directory = stat_of(inside_ / "dev/infiniband");
  EXPECT_EQ(directory.st_mode, S_IFDIR | 0755U);
  EXPECT_EQ(directory.st_uid, geteuid());
}

TEST_F(ContainerRootTest, KeepsRightNodeAndRefusesAnother) {
  if (!can_mknod()) GTEST_SKIP() << "mknod(2) of device nodes is not allowed here";
  fs::create_directories(inside_ / "dev/infiniband");
  ASSERT_EQ(mknod(path_.c_str(), S_IFCHR | 0600, makedev(1, 3)), 0);
  EXPECT_EQ(message(), "");
  EXPECT_EQ(stat_of(path_).st_mode, S_IFCHR | 0600U);
  EXPECT_EQ(stat_of(path_).st_uid, 0U);
  fs::remove(path_);
  ASSERT_EQ(mknod(path_.c_str(), S_IFCHR | 0600, makedev(1, 5)), 0);
  EXPECT_EQ(message(), "`/dev/infiniband/uverbs0` in the container is the character device 1:5, not 1:3");
}

TEST_F(ContainerRootTest, RefusesFileThatIsNotADeviceNode) {
  fs::create_directories(inside_ / "dev/infiniband");
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"a regular file", [&] { write_file(path_, ""); }},
      {"a directory", [&] { fs::create_directory(path_); }},
      {"a symlink", [&] { fs::create_symlink("/dev/null", path_); }},
      {"a FIFO", [&] { mkfifo(path_.c_str(), 0600); }}};
  for (const auto& [kind, make] : cases) {
    make();
    EXPECT_EQ(message(),
              fmt::format("`/dev/infiniband/uverbs0` in the container is {}, not the character device 1:3", kind));
    fs::remove(path_);
  }
}

TEST_F(ContainerRootTest, RefusesSymlinkedDirectories) {
  for (const char* link : {"dev", "dev/infiniband"}) {
    fs::create_symlink(outside_ / "victim", inside_ / link);
    EXPECT_EQ(message(), "cannot use `/dev/infiniband` in the container: it or a directory above it is a symlink");
    fs::remove(inside_ / link);
    fs::create_directory(inside_ / link);
  }
  EXPECT_TRUE(fs::is_empty(outside_ / "victim"));
}

// The kernel clears the signal of the parent's end at a change of the user.
TEST_F(ContainerRootTest, ChildEndsWithParentAfterChangeOfUser) {
  if (geteuid() != 0) GTEST_SKIP() << "setfsuid(2) needs CAP_SETUID";
  ASSERT_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
  EXPECT_FALSE(root().bind_node(kNode, -1, {65534, 65534}));
  int signal = 0;
  EXPECT_EQ(prctl(PR_GET_PDEATHSIG, &signal), 0);
  EXPECT_EQ(signal, SIGKILL);
  prctl(PR_SET_PDEATHSIG, 0);
}

TEST_F(ContainerRootTest, AcceptsMissingDestinationOfBind) {
  EXPECT_TRUE(root().bind_directory({"/src", "/sys/class/infiniband"}, -1));
  fs::create_symlink(outside_ / "victim", inside_ / "sys");
  EXPECT_EQ(error_code(root().bind_directory({"/src", "/sys/class/infiniband"}, -1)), ELOOP);
}

TEST(ContainerMounts, FindsSharedMount) {
  const char* const mountinfo =
      "21 1 0:20 / / rw,relatime - overlay overlay rw\n"
      "22 21 0:21 / /sys ro shared:7 - sysfs sysfs rw\n"
      "23 21 0:22 / /shared:9 rw master:7 propagate_from:3 - tmpfs shared:5 rw\n"
      "24 21 0:23 / /both rw master:7 shared:8 - tmpfs tmpfs rw\n";
  const char* const none =
      "21 1 0:20 / / rw,relatime - overlay overlay rw\n22 21 0:21 / /sys ro master:7 - sysfs s rw\n";
  const std::tuple<const char*, std::uint64_t, bool> rows[] = {
      {mountinfo, 21, false}, {mountinfo, 22, true}, {mountinfo, 23, false},    {mountinfo, 24, true},
      {mountinfo, 25, true},  {mountinfo, 0, true},  {none, 22, false},         {none, 25, false},
      {none, 0, false},       {"", 0, false},        {"garbage\n1\n", 1, false}};
  for (const auto& [text, id, expected] : rows)
    EXPECT_EQ(is_shared(text, id), expected) << id << " of " << text;
}

TEST(ContainerMounts, FindsBindOfPath) {
  const struct {
    std::vector<SpecMount> mounts;
    bool expected;  // for /dev/infiniband
  } rows[] = {{{}, false},
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
              {{{"/dev", false}, {"/dev/shm", true}, {"/dev/infini", true}, {"/dev/infiniband/uverbs0", true}}, false}};
  for (const auto& row : rows)
    EXPECT_EQ(is_in_bind(row.mounts, "/dev/infiniband"), row.expected) << &row - rows;
}

TEST(MappedRoot, ParsesMaps) {
  const std::tuple<const char*, const char*, std::optional<std::pair<uid_t, gid_t>>> rows[] = {
      {"         0     100000      65536\n", "         0     200000      65536\n", {{100000, 200000}}},
      {"         0          0 4294967295\n", "         0          0 4294967295\n", {{0, 0}}},
      {"1 100000 65536\n0 1000 1\n", "0 1000 1\n1 100000 65536\n", {{1000, 1000}}},
      {"1 100000 65536\n", "0 1000 1\n", std::nullopt},
      {"0 1000 0\n", "0 1000 1\n", std::nullopt},
      {"", "", std::nullopt},
      {"0 x 1\n", "0 1 1\n", std::nullopt}};
  for (const auto& [uids, gids, expected] : rows) {
    const auto owner = parse_mapped_root(uids, gids);
    EXPECT_EQ(owner ? std::optional(std::pair(owner->uid, owner->gid)) : std::nullopt, expected) << uids;
  }
}

// A process with its own mount namespace, in the state before the runtime pivots: the root file system is mounted onto
// itself, with a tmpfs at /dev.
class LiveContainerTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(rootfs_ / "sys/class/infiniband");
    fs::create_directories(dev_);
    sandbox_.emplace([this] {
      (void)(unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             mount(rootfs_.path().c_str(), rootfs_.path().c_str(), nullptr, MS_BIND, nullptr) == 0 &&
             mount_tmpfs(dev_));
    });
    state_.pid = sandbox_->identity().pid;
    if (stat_of(inside("/dev")).st_dev == stat_of(dev_).st_dev || !can_mknod())
      GTEST_SKIP() << "a mount namespace and mknod(2) need CAP_SYS_ADMIN";
    spec_.root_path = rootfs_.path();
    spec_.mounts = {{"/proc", false}, {"/dev", false}};
  }
  static bool mount_tmpfs(const std::string& path) { return mount("tmpfs", path.c_str(), "tmpfs", 0, "mode=755") == 0; }
  std::string inside(const std::string& path) const {
    return fmt::format("/proc/{}/root{}{}", state_.pid, rootfs_.path(), path);
  }
  std::string of_process(const char* name) const { return read_file(fmt::format("/proc/{}/{}", state_.pid, name)); }
  base::Result<LiveContainer> pin() const { return pin_container(state_, spec_); }
  // Runs in the container's mount namespace.
  void do_inside(const std::function<bool()>& what) const {
    ASSERT_OK(run_in_mount_namespace(must(pin()).mount_namespace.get(), [&]() -> base::Result<void> {
      if (what()) return {};
      return base::sys_error(errno, "do it inside");
    }));
  }
  // Returns why the steps are refused; "": they are not.
  static std::string refusal(const base::Result<LiveContainer>& container, const std::vector<Step>& steps = {kNode}) {
    return error_message(container ? run_steps(*container, steps, Engine::kRunc) : container.error());
  }
  static MakeNode bound(const char* source) {
    MakeNode node = kNode;
    node.bind = true;
    node.source = source;
    return node;
  }

  TempDir rootfs_;
  const std::string dev_ = rootfs_ / "dev";
  std::optional<Child> sandbox_;
  ContainerSpec spec_;
  OciState state_;
};

TEST_F(LiveContainerTest, MakesNodesAndBindsOnlyInContainer) {
  const TempDir view;
  write_file(view / "mlx5_0", "");
  const auto container = must(pin());
  const std::vector<Step> steps = {kNode, BindDirectory{view.path(), "/sys/class/infiniband"}};
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(must(run_steps(container, steps, Engine::kRunc)).empty());
  EXPECT_EQ(stat_of(inside("/dev/infiniband/uverbs0")).st_mode, S_IFCHR | 0640U);
  EXPECT_TRUE(fs::exists(inside("/sys/class/infiniband/mlx5_0")));
  // A second mount would cover the first.
  const std::string mounts = of_process("mounts");
  const std::size_t first = mounts.find("/sys/class/infiniband ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(mounts.find("/sys/class/infiniband ", first + 1), std::string::npos);
  EXPECT_EQ(mounts.substr(mounts.find(' ', mounts.find(' ', first) + 1) + 1, 3), "ro,");
  EXPECT_TRUE(fs::is_empty(dev_));
  EXPECT_TRUE(fs::is_empty(rootfs_ / "sys/class/infiniband"));
}

TEST_F(LiveContainerTest, BindsDeviceNodes) {
  const auto container = pin();
  EXPECT_EQ(refusal(container, {bound("/dev/null")}), "");
  EXPECT_EQ(stat_of(inside("/dev/infiniband/uverbs0")).st_ino, stat_of("/dev/null").st_ino);
  EXPECT_EQ(refusal(container, {bound("/dev/zero")}),
            "cannot bind mount `/dev/zero`: it is not the character device 1:3");
}

constexpr const char* kMountedFromTheNode =
    "cannot create a file in `/dev` of the container: it is mounted from the node";

TEST_F(LiveContainerTest, ChangesNoMountOfTheNode) {
  const auto container = pin();
  const TempDir shared;
  do_inside([&] { return mount(shared.path().c_str(), dev_.c_str(), nullptr, MS_BIND, nullptr) == 0; });
  EXPECT_EQ(refusal(container), kMountedFromTheNode);
  EXPECT_TRUE(fs::is_empty(shared.path()));
}

// With a link /lnk -> dev of the image, a volume of the pod at /lnk/infiniband is mounted at /dev/infiniband: a tmpfs
// of the node.
TEST_F(LiveContainerTest, RefusesVolumeBelowDev) {
  spec_.mounts.push_back({"/lnk/infiniband", true});
  const std::string target = dev_ + "/infiniband";
  do_inside([&] { return mkdir(target.c_str(), 0755) == 0 && mount_tmpfs(target); });
  EXPECT_EQ(refusal(pin()), "cannot create a file in `/dev/infiniband` of the container: it is mounted from the node");
  EXPECT_TRUE(fs::is_empty(inside("/dev/infiniband")));
}

TEST_F(LiveContainerTest, RefusesVolumeOnDevAndTmpfsThatIsABind) {
  spec_.mounts[1].is_bind = true;
  EXPECT_EQ(refusal(pin()), kMountedFromTheNode);
  EXPECT_FALSE(fs::exists(inside("/dev/infiniband")));
  spec_.mounts[1].is_bind = false;
  // With a link /lnk -> / a volume at /lnk/dev is mounted on the runtime's tmpfs.
  do_inside([&] { return mount_tmpfs(dev_); });
  EXPECT_EQ(refusal(pin()), kMountedFromTheNode);
}

TEST_F(LiveContainerTest, MountsLentLibrariesOnADirectoryThatItMakes) {
  const TempDir libraries;
  write_file(libraries / "libibverbs.so.1", "");
  const auto container = must(pin());
  const std::vector<Step> steps = {BindDirectory{libraries.path(), fabric::kLentDirectory, "", true}};
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(must(run_steps(container, steps, Engine::kRunc)).empty());
  EXPECT_TRUE(fs::exists(inside("/run/rdma-init/lib/libibverbs.so.1")));
  const std::string mounts = of_process("mounts");
  const std::size_t at = mounts.find("/run/rdma-init/lib ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(mounts.find("/run/rdma-init/lib ", at + 1), std::string::npos) << "a second mount would cover the first";
  const std::string options = mounts.substr(mounts.find(' ', mounts.find(' ', at) + 1) + 1, 40);
  EXPECT_TRUE(options.starts_with("ro,nosuid,nodev")) << options;
  EXPECT_EQ(options.substr(0, options.find(' ')).find("noexec"), std::string::npos) << options;
}

TEST_F(LiveContainerTest, StartsWithoutLentLibrariesIfItCannotMakeTheirDirectory) {
  const TempDir libraries;
  const TempDir elsewhere;
  const std::vector<Step> steps = {BindDirectory{libraries.path(), fabric::kLentDirectory, "", true}};
  // A link of the image leads out of its root.
  fs::create_symlink(elsewhere.path(), rootfs_ / "run");
  const auto warnings = must(run_steps(must(pin()), steps, Engine::kRunc));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(warnings[0].starts_with("the node's libraries are not lent: ")) << warnings[0];
  EXPECT_TRUE(warnings[0].ends_with("remove the symlink from the image, or mount a tmpfs at /run")) << warnings[0];
  fs::remove(rootfs_ / "run");
  write_file(rootfs_ / "run", "");
  const auto file = must(run_steps(must(pin()), steps, Engine::kRunc)).at(0);
  EXPECT_TRUE(file.ends_with("remove the file from the image, or mount a tmpfs at /run")) << file;
  fs::remove(rootfs_ / "run");
  // A volume of the node.
  fs::create_directory(rootfs_ / "run");
  do_inside([&] { return mount(elsewhere.path().c_str(), (rootfs_ / "run").c_str(), nullptr, MS_BIND, nullptr) == 0; });
  spec_.mounts.push_back({"/run", true});
  EXPECT_NE(must(run_steps(must(pin()), steps, Engine::kRunc)).at(0).find("it is mounted from the node"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
}

TEST_F(LiveContainerTest, RefusesMountsThatPropagateToNode) {
  do_inside([] { return mount(nullptr, "/", nullptr, MS_REC | MS_SHARED, nullptr) == 0; });
  const auto container = must(pin());
  const TempDir view;
  const std::string mounts = of_process("mounts");
  const std::pair<Step, const char*> cases[] = {
      {bound("/dev/null"), "/dev/infiniband"},
      {BindDirectory{view.path(), "/sys/class/infiniband"}, "/sys/class/infiniband"}};
  for (const auto& [step, path] : cases) {
    EXPECT_EQ(error_message(run_steps(container, {step}, Engine::kRunc)),
              fmt::format("`{}` in the container is shared with the node (rootfsPropagation): a mount there would "
                          "appear on the node",
                          path));
  }
  EXPECT_EQ(of_process("mounts"), mounts);
  EXPECT_FALSE(fs::exists(inside("/dev/infiniband/uverbs0")));
}

// A bind mount must not stay a peer of the node's mount: a mount below it would propagate to the node.
TEST_F(LiveContainerTest, MakesBindsPrivate) {
  const TempDir peer;
  ASSERT_EQ(mount("tmpfs", peer.path().c_str(), "tmpfs", 0, "size=1m"), 0);
  EXPECT_EQ(mount(nullptr, peer.path().c_str(), nullptr, MS_SHARED, nullptr), 0);
  const auto container = pin();
  const bool done =
      container && run_steps(*container, {BindDirectory{peer.path(), "/sys/class/infiniband"}}, Engine::kRunc);
  const std::string mountinfo = of_process("mountinfo");
  EXPECT_EQ(umount2(peer.path().c_str(), MNT_DETACH), 0);
  ASSERT_TRUE(done);
  const std::size_t place = mountinfo.find("/sys/class/infiniband ");
  ASSERT_NE(place, std::string::npos);
  const std::string rest = mountinfo.substr(place, mountinfo.find('\n', place) - place);
  EXPECT_TRUE(rest.starts_with("/sys/class/infiniband ro,nosuid,nodev,noexec")) << rest;
  EXPECT_EQ(rest.find("shared:"), std::string::npos) << rest;
}

// A call was killed between making the file and mounting onto it.
TEST_F(LiveContainerTest, UsesPlaceholderOfAnEarlierCall) {
  const struct {
    const char* name;
    const char* content;
    mode_t mode;
    uid_t uid;
    bool linked;
    bool is_ours;
  } cases[] = {
      {"ours", "", 0, 0, false, true},         {"not empty", "x", 0, 0, false, false},
      {"readable", "", 0400, 0, false, false}, {"another's", "", 0, 7, false, false},
      {"two names", "", 0, 0, true, false},
  };
  const auto container = pin();
  int number = 0;
  for (const auto& row : cases) {
    SCOPED_TRACE(row.name);
    MakeNode node = bound("/dev/null");
    node.path = fmt::format("/dev/infiniband/uverbs{}", number++);
    const std::string path = inside(node.path);
    write_file(path, row.content);
    ASSERT_EQ(chmod(path.c_str(), row.mode), 0);
    ASSERT_EQ(chown(path.c_str(), row.uid, 0), 0);
    if (row.linked) fs::create_hard_link(path, path + ".link");
    const std::string message =
        fmt::format("`{}` in the container is a regular file, not the character device 1:3", node.path);
    EXPECT_EQ(refusal(container, {node}), row.is_ours ? "" : message);
    EXPECT_EQ(S_ISCHR(stat_of(path).st_mode), row.is_ours);
  }
}

TEST_F(LiveContainerTest, RefusesOtherRoots) {
  const auto refused = [](const std::string& path) {
    return fmt::format("cannot use `{}`: it is another directory in the container's mount namespace", path);
  };
  const TempDir other;
  fs::create_directory(other / "dev");
  spec_.root_path = other.path();
  EXPECT_EQ(refusal(pin()), refused(other.path()));
  spec_.root_path = "/";
  EXPECT_EQ(refusal(pin()), "cannot use `/` as a container's root: it is the root of the node");
  // The process is replaced before or after it is pinned.
  const std::string root = spec_.root_path = rootfs_.path();
  const auto before = pin();
  fs::rename(root, root + ".old");
  fs::create_symlink(other.path(), root);
  EXPECT_EQ(refusal(before), refused(root));
  EXPECT_EQ(refusal(pin()), refused(root));
  fs::remove(root);
  fs::rename(root + ".old", root);
  EXPECT_TRUE(fs::is_empty(other / "dev"));
  // Without the mounts of config.json it is not a container's root.
  spec_.mounts = {{"/proc", false}, {"/sys", false}, {"/nowhere", false}};
  EXPECT_EQ(refusal(pin(), {kNode, SetMemlock{UINT64_MAX}}),
            fmt::format("cannot use `{}` as the container's root: none of the mounts of the bundle is in it", root));
}

TEST_F(LiveContainerTest, RefusesEndedProcess) {
  const auto container = pin();
  ASSERT_TRUE(container);
  sandbox_.reset();
  EXPECT_EQ(check_alive(*container).error().code, ESRCH);
  EXPECT_EQ(refusal(container, {SetMemlock{1}}),
            fmt::format("cannot change the container: its process {} has ended", state_.pid));
  EXPECT_EQ(refusal(pin()), fmt::format("cannot find the process {} of the container: it has ended", state_.pid));
}

TEST(PinContainer, RefusesMountNamespaceOfNode) {
  OciState state;
  state.pid = getpid();
  ContainerSpec spec;
  spec.root_path = "/";
  const auto container = pin_container(state, spec);
  EXPECT_EQ(
      error_message(container),
      fmt::format("cannot use process {}: it shares the node's mount namespace, so it is not the init of a container",
                  getpid()));
}

TEST(RunInMountNamespace, ReturnsErrorsAndExitOfChild) {
  const UniqueFd own(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  if (geteuid() != 0) GTEST_SKIP() << "setns(2) needs CAP_SYS_ADMIN";
  const auto failed = run_in_mount_namespace(own.get(), []() -> base::Result<void> {
    return base::Error{std::string(5000, 'x'), EROFS, "remedy"};
  });
  EXPECT_EQ(error_message(failed), std::string(1999, 'x'));
  EXPECT_EQ(error_code(failed), EROFS);
  EXPECT_EQ(error_hint(failed), "remedy");
  EXPECT_EQ(error_message(run_in_mount_namespace(own.get(), []() -> base::Result<void> { _exit(3); })),
            "cannot work in the container's mount namespace: the child process ended with exit status 3");
}

const char* const kNoCapability =
    "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is unlimited instead, which is enough for ibv_reg_mr";
const char* const kNotInExec =
    "`exec` into the container gets the engine's RLIMIT_MEMLOCK, not unlimited: use rdma-runtime or raise the limit "
    "(--ulimit memlock=-1:-1)";

LiveNode podman(std::optional<Rlimit> memlock = std::nullopt) {
  return {"", Engine::kPodman, memlock};
}

PlannedNode node(std::string path, std::uint32_t major, std::uint32_t minor) {
  return PlannedNode{std::move(path), major, minor, 0660, 1, 2};
}

Plan usual_plan() {
  Plan plan;
  plan.nodes = {node("/dev/infiniband/uverbs0", 231, 192), node("/dev/infiniband/rdma_cm", 10, 57)};
  plan.memlock = UINT64_MAX;
  plan.capabilities = {"CAP_IPC_LOCK"};
  plan.mounts = {{"/sys/class/infiniband", "/run/rdma-hook/views/k/infiniband", "bind", {"ro"}}};
  return plan;
}

Result<LivePlan> steps_of(const Plan& plan, const ContainerSpec& spec = {}, const OciState& state = {},
                          const LiveNode& node = podman()) {
  Plan granted = plan;
  granted.hcas.emplace_back();
  return live_steps(adjust(granted, spec), spec, state, node);
}

TEST(LiveSteps, OrdersNodesMountsRulesMemlock) {
  const auto live = must(steps_of(usual_plan()));
  const std::vector<Step> expected = {
      MakeNode{"/dev/infiniband/uverbs0", 231, 192, 0660, 1, 2, false, ""},
      MakeNode{"/dev/infiniband/rdma_cm", 10, 57, 0660, 1, 2, false, ""},
      BindDirectory{"/run/rdma-hook/views/k/infiniband", "/sys/class/infiniband"},
      AllowDevices{{{231, 192}, {10, 57}}},
      SetMemlock{UINT64_MAX, kNoCapability},
  };
  EXPECT_TRUE(live.steps == expected);
  EXPECT_EQ(live.warnings, (std::vector<std::string>{kNotInExec}));
}

TEST(LimitRdma, LowersOnly) {
  const PlannedRdmaLimit limit{"mlx5_1", {.handles = 8, .objects = 4096}};
  const auto line = [&](const char* now) { return lowering_line(now, limit).value_or("none"); };
  EXPECT_EQ(line("mlx5_10 hca_handle=1 hca_object=1 \nmlx5_1 hca_handle=max hca_object=max \n"),
            "mlx5_1 hca_handle=8 hca_object=4096");
  EXPECT_EQ(line("mlx5_1 hca_handle=9 hca_object=100 \n"), "mlx5_1 hca_handle=8 hca_object=100");
  EXPECT_EQ(line("mlx5_1 hca_handle=8 hca_object=100 \n"), "none");
  EXPECT_EQ(lowering_line("mlx5_1 hca_handle=3 hca_object=max \n", {"mlx5_1", {.handles = {}, .objects = 5}}),
            "mlx5_1 hca_handle=3 hca_object=5");
  EXPECT_EQ(line(""), "mlx5_1 hca_handle=8 hca_object=4096") << "the kernel then refuses the unknown device";
}

TEST(LiveSteps, FollowThePlanAndTheSpecification) {
  const auto nothing = must(steps_of({}));
  EXPECT_TRUE(nothing.steps.empty());
  EXPECT_TRUE(nothing.warnings.empty());
  ContainerSpec spec;
  spec.has_userns = true;
  EXPECT_TRUE(must(steps_of(usual_plan(), spec, {}, {.root = "/tree"})).steps[0] ==
              Step(MakeNode{"/dev/infiniband/uverbs0", 231, 192, 0660, 1, 2, true, "/tree/dev/infiniband/uverbs0"}));
  Plan plan = usual_plan();
  plan.rdma_limits = {{"mlx5_0", {2, 4096}}};
  EXPECT_TRUE(must(steps_of(plan)).steps[3] == Step(LimitRdma{plan.rdma_limits}))
      << "limits are set before devices can be opened";
  plan.mounts = {
      {"/sys/class/infiniband", "/v/set/infiniband", "overlay", {"lowerdir=/v/set/infiniband:/v/none", "ro"}}};
  EXPECT_TRUE(must(steps_of(plan)).steps[2] ==
              Step(BindDirectory{"/v/set/infiniband", "/sys/class/infiniband", "/v/set/infiniband:/v/none"}));
  plan.mounts = {{fabric::kLentDirectory, "/v/set/lib", "bind", {"bind", "ro", "nosuid", "nodev"}}};
  EXPECT_TRUE(must(steps_of(plan)).steps[2] == Step(BindDirectory{"/v/set/lib", fabric::kLentDirectory, "", true}));
  Plan twice;
  twice.nodes = {node("/dev/a", 231, 192), node("/dev/b", 231, 192)};
  const auto live = must(steps_of(twice));
  EXPECT_TRUE(live.steps.at(2) == Step(AllowDevices{{{231, 192}}})) << "one rule for one device";
  EXPECT_EQ(live.steps.size(), 3U);
}

TEST(LiveSteps, RefusesNodeWithoutNumber) {
  Plan plan = usual_plan();
  plan.nodes[1].minor.reset();
  const auto live = steps_of(plan);
  EXPECT_EQ(error_message(live),
            "cannot make `/dev/infiniband/rdma_cm` in the container: its device number is unknown");
  EXPECT_EQ(error_hint(live), "apply a plan of the live node, not of a snapshot");
}

// Returns the step of the limit, "raise to BYTES: NOTE", and the warnings, one per line.
std::string memlock_steps(std::optional<std::uint64_t> planned, const ContainerSpec& spec, bool from_crun,
                          const LiveNode& node) {
  Plan plan;
  plan.memlock = planned;
  plan.capabilities = {"CAP_IPC_LOCK"};
  OciState state;
  state.from_crun = from_crun;
  const auto live = must(steps_of(plan, spec, state, node));
  std::string text;
  for (const Step& step : live.steps)
    text += fmt::format("raise to {}: {}\n", std::get<SetMemlock>(step).bytes, std::get<SetMemlock>(step).note);
  for (const std::string& warning : live.warnings)
    text += warning + "\n";
  return text;
}

TEST(LiveSteps, RaisesMemlockUnlessRuntimeSetsIt) {
  const auto with = [](std::optional<std::uint64_t> planned, std::optional<Rlimit> listed, bool from_crun) {
    ContainerSpec spec;
    spec.memlock = listed;
    return memlock_steps(planned, spec, from_crun, podman());
  };
  const std::string raised = fmt::format("raise to {}: {}\n{}\n", UINT64_MAX, kNoCapability, kNotInExec);
  EXPECT_EQ(with(UINT64_MAX, std::nullopt, false), raised);
  EXPECT_EQ(with(UINT64_MAX, Rlimit{65536, 65536}, true), raised) << "crun, less listed";
  EXPECT_EQ(
      with(UINT64_MAX, Rlimit{65536, 131072}, false),
      "cannot set RLIMIT_MEMLOCK to unlimited at createRuntime: the runtime sets 65536 bytes from config.json after "
      "this hook; remove the limit from the engine's options, raise it (--ulimit memlock=-1:-1), or use rdma-runtime\n"
      "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is 65536 bytes, and ibv_reg_mr fails beyond it: use "
      "rdma-runtime, or --cap-add IPC_LOCK\n");
  EXPECT_EQ(with(65536, Rlimit{UINT64_MAX, UINT64_MAX}, false), std::string(kNoCapability) + "\n");
  EXPECT_EQ(with(std::nullopt, std::nullopt, false),
            "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is the engine's limit, and ibv_reg_mr fails "
            "beyond it: use rdma-runtime, or --cap-add IPC_LOCK\n");
}

// The messages have the final limit and the options of the engine.
TEST(LiveSteps, WarnsWithFinalMemlock) {
  constexpr std::uint64_t kSix = std::uint64_t{6} << 20;
  constexpr std::uint64_t kEight = std::uint64_t{8} << 20;
  const auto with = [](std::optional<std::uint64_t> planned, std::uint64_t now, bool has_ipc_lock, bool has_userns) {
    ContainerSpec spec;
    spec.has_ipc_lock = has_ipc_lock;
    spec.has_userns = has_userns;
    return memlock_steps(planned, spec, false, {.engine = Engine::kCrio, .memlock = Rlimit{now, now}});
  };
  const std::string beyond = ", and ibv_reg_mr fails beyond it: ";
  const std::string add = "use rdma-runtime, or IPC_LOCK in capabilities.add of the container's securityContext\n";
  const std::string raise = "(default_ulimits = [\"memlock=-1:-1\"] in crio.conf)\n";
  const std::string cannot = "cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is ";
  const std::string exec =
      "`exec` into the container gets the engine's RLIMIT_MEMLOCK, not 8388608 bytes: use rdma-runtime or raise the "
      "limit " +
      raise;
  EXPECT_EQ(with(kSix, kEight, false, false), cannot + "8388608 bytes" + beyond + add) << "more than is planned";
  EXPECT_EQ(with(kEight, kSix, false, false), "raise to 8388608: " + cannot + "8388608 bytes" + beyond + add + exec);
  EXPECT_EQ(with(std::nullopt, kSix, false, false), cannot + "6291456 bytes" + beyond + add) << "no limit is planned";
  EXPECT_EQ(with(kEight, kSix, true, false), "raise to 8388608: \n" + exec) << "it has the capability";
  EXPECT_EQ(with(kEight, UINT64_MAX, true, false), "") << "nothing is missing";
  EXPECT_EQ(with(kSix, kEight, true, true),
            "CAP_IPC_LOCK has no effect in a user namespace; RLIMIT_MEMLOCK is 8388608 bytes" + beyond +
                "raise the limit " + raise);
}

}  // namespace
}  // namespace hook
