// HCAs that stay open after their grant: contexts and descriptors that the kernel reports, and the decision to release.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rdma/rdma_netlink.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/open_hcas.hpp"
#include "support/results.hpp"
#include "unit/hook/ledger/scene.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace fabric::netlink;
using namespace test_support;

const OpenProcess kStranger{4711, "python3", true};
const OpenProcess kOther{4712, "sh", true};
const OpenProcess kAgent{12, "agent", false};

TEST(FindLeftOpen, CountsContextsAndDescriptorsSinceTheGrant) {
  const std::tuple<const char*, ContextIds, OpenHca, LeftOpen> cases[] = {
      {"nothing is open", {}, {}, {}},
      {"a context of a container's process", {}, {{{7, {kStranger}}}, {}}, {{kStranger}, 0, {}}},
      {"a context of a process of the node", {}, {{{7, {kAgent}}}, {}}, {{}, 0, {kAgent}}},
      {"a context that processes of both use", {}, {{{7, {kAgent, kStranger}}}, {}}, {{kStranger}, 0, {kAgent}}},
      {"a context without a process", {}, {{{7, {}}}, {}}, {{}, 1, {}}},
      {"contexts from before", {3, 7}, {{{3, {}}, {7, {kStranger}}}, {}}, {}},
      {"one more than before", {3}, {{{3, {kAgent}}, {7, {kStranger}}}, {}}, {{kStranger}, 0, {}}},
      {"another one than before", {3}, {{{7, {}}}, {}}, {{}, 1, {}}},
      {"two contexts of one process", {}, {{{7, {kStranger}}, {8, {kStranger}}}, {}}, {{kStranger}, 0, {}}},
      {"a descriptor of a container's process", {}, {{}, {kStranger}}, {{kStranger}, 0, {}}},
      {"a descriptor of a process of the node", {}, {{}, {kAgent}}, {{}, 0, {kAgent}}},
      {"a descriptor of a process with a context from before",
       {3},
       {{{3, {kStranger}}}, {kStranger, kOther}},
       {{kOther}, 0, {}}}};
  for (const auto& [name, before, now, expected] : cases) {
    SCOPED_TRACE(name);
    const LeftOpen left = find_left_open({.index = 1, .contexts = before, .node = {}}, now);
    EXPECT_EQ(left.of_containers, expected.of_containers);
    EXPECT_EQ(left.unknown, expected.unknown);
    EXPECT_EQ(left.of_node, expected.of_node);
  }
}

TEST(ContainerCgroup, ExcludesServicesAndSessionsOfSystemd) {
  for (const char* cgroup :
       {"/", "/init.scope", "/system.slice/node-exporter.service", "/system.slice", "/system.slice/dbus.socket",
        "/user.slice/user-0.slice/session-3.scope", "/user.slice/user-0.slice/user@0.service/init.scope",
        "/../../../system.slice/kubelet.service", "/.."})
    EXPECT_FALSE(is_container_cgroup(cgroup)) << cgroup;
  for (const char* cgroup :
       {"/docker/4f2c", "/system.slice/docker-4f2c.scope",
        "/system.slice/containerd.service/kubepods:cri-containerd:4f",
        "/kubepods.slice/kubepods-pod1.slice/cri-containerd-4f2c.scope", "/lab/web", "/../other/4f2c",
        "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-4f2c.scope", "/machine.slice/libpod-4f.scope",
        "/system.slice/slurmstepd.scope/job_1/step_0/user", "/system.slice/docker-4f2c.scope/x.service",
        "/system.slice/docker-4f2c.scope/init.scope", "/kubepods/pod1/4f/system.slice/x.service"})
    EXPECT_TRUE(is_container_cgroup(cgroup)) << cgroup;
}

// Calls use() with the attributes of a message that fill() makes.
template <typename Fill>
void with_message(const Fill& fill, const std::function<void(const Attributes&)>& use) {
  RequestBuilder made(0x1409, 0, Bytes());
  fill(made);
  use(made.message().attributes(0));
}

void put_count(RequestBuilder& message, const char* name, std::uint64_t count) {
  const auto entry = message.begin(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
  message.put(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, std::string_view(name));
  message.put(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
  message.end(entry);
}

TEST(RdmaContexts, CountsContextsOfTheSummary) {
  const auto fill = [](RequestBuilder& message) {
    message.put(RDMA_NLDEV_ATTR_DEV_INDEX, std::uint32_t{3});
    message.put(RDMA_NLDEV_ATTR_DEV_NAME, std::string_view("rxe0"));
    const auto table = message.begin(RDMA_NLDEV_ATTR_RES_SUMMARY);
    put_count(message, "pd", 5);
    put_count(message, "ctx", 2);
    message.end(table);
  };
  with_message(fill, [](const Attributes& device) { EXPECT_EQ(parse_rdma_use(device), (RdmaUse{3, "rxe0", 2})); });
  with_message([](RequestBuilder& message) { message.put(RDMA_NLDEV_ATTR_DEV_INDEX, std::uint32_t{3}); },
               [](const Attributes& device) { EXPECT_FALSE(parse_rdma_use(device)); });
}

struct Entry {
  std::optional<std::uint32_t> context;
  std::optional<std::uint32_t> domain;
  std::uint32_t pid;  // 0: none
};

void add(RdmaContextTable& table, void (RdmaContextTable::*how)(const Attributes&), const Entry& entry) {
  const auto fill = [&](RequestBuilder& message) {
    if (entry.context) message.put(RDMA_NLDEV_ATTR_RES_CTXN, *entry.context);
    if (entry.domain) message.put(RDMA_NLDEV_ATTR_RES_PDN, *entry.domain);
    if (entry.pid != 0) message.put(RDMA_NLDEV_ATTR_RES_PID, entry.pid);
  };
  with_message(fill, [&](const Attributes& attributes) { (table.*how)(attributes); });
}

// The process that opened context 7 has ended. Process 4711 has a PD in it, and 4712 a QP in this PD.
RdmaContextTable passed_on() {
  RdmaContextTable table;
  add(table, &RdmaContextTable::add_context, {7, {}, 0});
  add(table, &RdmaContextTable::add_context, {9, {}, 12});
  add(table, &RdmaContextTable::add_domain, {7, 1, 4711});
  add(table, &RdmaContextTable::add_domain, {{}, 2, 0});  // a PD of the kernel
  add(table, &RdmaContextTable::add_in_domain, {{}, 1, 4712});
  add(table, &RdmaContextTable::add_in_domain, {{}, 1, 4711});
  return table;
}

TEST(RdmaContexts, HaveTheProcessesOfTheirObjects) {
  EXPECT_EQ(passed_on().take(), (std::vector<RdmaContext>{{7, {4711, 4712}}, {9, {12}}}));
  RdmaContextTable table;
  add(table, &RdmaContextTable::add_domain, {{}, 1, 4711});
  EXPECT_EQ(std::move(table).number(2), (std::vector<RdmaContext>{{0, {4711}}, {1, {4711}}}));
  EXPECT_OK(rdma_use());
}

constexpr DeviceNumber kFull{1, 7};

bool holds_full(pid_t pid) {
  const auto found = find_descriptors({kFull});
  if (!found) ADD_FAILURE() << found.error().message;
  return found && !found->unseen.contains(pid) &&
         std::find(found->descriptors.begin(), found->descriptors.end(), OpenDescriptor{pid, kFull}) !=
             found->descriptors.end();
}

TEST(FindDescriptors, FindsProcessThatHasADescriptor) {
  Child child([] { (void)::open("/dev/full", O_RDWR | O_CLOEXEC); });
  const Child other;
  EXPECT_TRUE(holds_full(child.identity().pid));
  EXPECT_FALSE(holds_full(other.identity().pid));
  child.kill();
  EXPECT_FALSE(holds_full(child.identity().pid));
}

// After the first thread has ended, its table is empty.
TEST(FindDescriptors, FindsProcessWithoutItsFirstThread) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)::open("/dev/full", O_RDWR | O_CLOEXEC);
    std::thread([&] {
      ::usleep(50000);
      (void)::write(ready[1], "x", 1);
      ::pause();
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(holds_full(pid));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

// A node with files as /proc: process 4711 has /dev/full open, which stands for a uverbs node.
class CheckClosed : public testing::Test {
 protected:
  CheckClosed() { run_in("/lab/other"); }
  void run_in(const std::string& cgroup) const {
    const std::string process = root_.path() + "/proc/4711";
    write_file(process + "/cgroup", "0::" + cgroup + "\n");
    write_file(process + "/comm", "python3\n");
    fs::create_directories(process + "/fd");
    fs::remove(process + "/fd/3");
    fs::create_symlink("/dev/full", process + "/fd/3");
  }
  base::Result<void> check(bool descriptors = true) {
    PlannedHca hca{"mlx5_0", Mode::kExclusive, 1, std::nullopt};
    hca.open = OpenState{.index = {}, .contexts = {}, .node = kFull};
    warnings_.clear();
    return check_closed({hca}, root_.path(), descriptors, warnings_);
  }
  TempDir root_;
  std::vector<std::string> warnings_;
};

TEST_F(CheckClosed, FailsWhileAnotherContainerHasADescriptor) {
  EXPECT_TRUE(check(false)) << "without a search for descriptors";
  const auto closed = check();
  EXPECT_EQ(error_code(closed), EBUSY);
  EXPECT_EQ(error_message(closed),
            "cannot release `mlx5_0`: its former owner is gone, but process 4711 (`python3`) has it open");
  EXPECT_EQ(error_hint(closed), "end that process or its container, then run `rdma-hook recover`");
  fs::remove_all(root_ / "proc/4711");
  EXPECT_TRUE(check());
}

TEST_F(CheckClosed, WarnsOfDescriptorOfAProcessOfTheNode) {
  run_in("/system.slice/agent.service");
  EXPECT_TRUE(check());
  EXPECT_EQ(warnings_, std::vector<std::string>{
                           "`mlx5_0` is released, but is open in process 4711 (`python3`), which runs on the node"});
}

TEST_F(CheckClosed, FailsIfAProcessOfAContainerCannotBeRead) {
  fs::remove_all(root_ / "proc/4711/fd");
  write_file(root_ / "proc/4711/fd", "");
  EXPECT_EQ(error_message(check()), "cannot read the descriptors of process `4711`: Not a directory");
  write_file(root_ / "proc/4711/cgroup", "0::/system.slice/agent.service\n");
  EXPECT_TRUE(check());
}

}  // namespace
}  // namespace hook
