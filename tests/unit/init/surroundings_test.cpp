#include "init/decision.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "init/image.hpp"
#include "init/surroundings.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace init;
using namespace test_support;

// Properties of a container, other than its HCAs, that affect a trainer.

std::vector<Check> check(const fabric::Inventory& node, const Surroundings& around, const Settings& settings = {}) {
  return init::check_surroundings(node, settings, init::decide(node, {}, {}), around);
}

TEST(SurroundingsCheck, HasOneFindingPerProperty) {
  const auto with = [](auto set) {
    Surroundings around;
    set(around);
    return around;
  };
  const struct {
    const char* name;
    Surroundings around;
    std::size_t gpus;
    const char* found;  // nullptr: no finding
    Verdict verdict;
    const char* part;
  } rows[] = {
      {"no property is known", {}, 8, nullptr, Verdict::kGood, ""},
      {"64 MiB", with([](auto& a) { a.shared_memory = 64 << 20; }), 2, "shm", Verdict::kNote, "64 MiB beside 2 GPUs"},
      {"64 MiB for one GPU", with([](auto& a) { a.shared_memory = 64 << 20; }), 1, nullptr, Verdict::kGood, ""},
      {"1 GiB", with([](auto& a) { a.shared_memory = 1 << 30; }), 2, nullptr, Verdict::kGood, ""},
      {"no limit", with([](auto& a) { a.shared_memory = 0; }), 2, nullptr, Verdict::kGood, ""},
      {"few files", with([](auto& a) { a.open_files = a.open_files_hard = 1024; }), 0, "nofile", Verdict::kNote,
       "RLIMIT_NOFILE is 1024"},
      {"many files", with([](auto& a) { a.open_files = 1 << 20; }), 0, nullptr, Verdict::kGood, ""},
      {"no handle", with([](auto& a) { a.rdma_limits["mlx5_0"].handles = 0; }), 0, "rdma.max", Verdict::kBad,
       "mlx5_0 to hca_handle=0 hca_object=max: it cannot be opened"},
      {"few objects", with([](auto& a) { a.rdma_limits["mlx5_0"].objects = 100; }), 0, "rdma.max", Verdict::kNote,
       "hca_handle=max hca_object=100"},
      {"many objects", with([](auto& a) { a.rdma_limits["mlx5_0"].objects = 100000; }), 0, nullptr, Verdict::kGood, ""},
      {"another HCA", with([](auto& a) { a.rdma_limits["mlx5_9"].handles = 0; }), 0, nullptr, Verdict::kGood, ""},
      {"seccomp", with([](auto& a) { a.refused = {"ioctl"}; }), 0, "seccomp", Verdict::kBad, "refuses ioctl"},
      {"peermem", with([](auto& a) { a.nvidia = a.peer_memory = true; }), 1, "gpudirect", Verdict::kGood,
       "nvidia_peermem is loaded"},
      {"DMA-BUF", with([](auto& a) { a.nvidia = a.open_module = true, a.kernel = "5.12.0"; }), 1, "gpudirect",
       Verdict::kGood, "by DMA-BUF (Linux 5.12.0"},
      {"too old for DMA-BUF", with([](auto& a) { a.nvidia = a.open_module = true, a.kernel = "5.4.0-150"; }), 1,
       "gpudirect", Verdict::kSlow, "GPUDirect RDMA was not detected"},
      {"closed module", with([](auto& a) { a.nvidia = true, a.kernel = "6.1"; }), 1, "gpudirect", Verdict::kSlow,
       "through the host's memory"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    fabric::Inventory node = test_support::rails(1);
    node.gpus.emplace(row.gpus);
    const auto found = check(node, row.around);
    ASSERT_EQ(found.size(), row.found ? 1U : 0U);
    if (!row.found) continue;
    EXPECT_EQ(found[0].name, row.found);
    EXPECT_EQ(found[0].verdict, row.verdict);
    EXPECT_NE(found[0].message.find(row.part), std::string::npos) << found[0].message;
    EXPECT_EQ(found[0].remedy.empty(), row.verdict == Verdict::kGood);
  }
}

TEST(SurroundingsCheck, NotesWhatIbgdaNeeds) {
  fabric::Inventory node = test_support::rails(1);
  node.limits.emplace();
  node.limits->cap_eff = 0;
  node.limits->initial_userns = true;
  Surroundings around;
  around.nvidia = around.peer_memory = true;
  around.peer_mapping = around.gdrdrv = false;
  const auto finds = [&](const char* value) {
    const auto found = check(node, around, {{"NVSHMEM_IB_ENABLE_IBGDA", {value, "environment"}}});
    return found.size() == 2 && found[1].name == "ibgda" && found[1].verdict == Verdict::kNote &&
           !found[1].remedy.empty();
  };
  for (const char* value : {"1", "true", "yes"})
    EXPECT_TRUE(finds(value)) << value;
  for (const char* value : {"", "0", "no", "False"})
    EXPECT_FALSE(finds(value)) << value;
  EXPECT_EQ(check(node, around).size(), 1U) << "the variable is not set";
  const auto only_good_with = [&](auto set) {
    const auto kept = std::pair(node, around);
    set();
    const bool good = !finds("1");
    std::tie(node, around) = kept;
    return good && finds("1");
  };
  EXPECT_TRUE(only_good_with([&] { around.peer_mapping = true; }));
  EXPECT_TRUE(only_good_with([&] { around.peer_mapping = std::nullopt; })) << "not known";
  EXPECT_TRUE(only_good_with([&] { around.gdrdrv = std::nullopt; })) << "not known";
  EXPECT_TRUE(only_good_with([&] { around.nvidia = false; }));
  EXPECT_TRUE(only_good_with([&] { node.limits = std::nullopt; })) << "not known";
  EXPECT_TRUE(only_good_with([&] { node.limits->cap_eff = 1ULL << 21; }));
  node.limits->cap_eff = 1ULL << 21;
  node.limits->initial_userns = false;
  EXPECT_TRUE(finds("1")) << "capable() checks the initial user namespace";
}

TEST(SurroundingsCheck, NotesDataDirectDevicesAndAMissingImexChannel) {
  fabric::Inventory node = test_support::rails(1);
  Surroundings around;
  around.data_direct = 4;
  const auto names = [&](const Settings& settings = {}) {
    std::string text;
    for (const Check& one : check(node, around, settings))
      (text += one.name) += " ";
    return text;
  };
  EXPECT_EQ(names(), "data-direct ");
  EXPECT_EQ(names({{"NCCL_IB_DATA_DIRECT", {"1", "environment"}}}), "") << "the user has decided";
  around.multi_node_nvlink = true;
  EXPECT_EQ(names(), "data-direct ") << "not known whether there is a channel";
  around.imex_channel = true;
  EXPECT_EQ(names(), "data-direct ");
  around.imex_channel = false;
  EXPECT_EQ(names(), "data-direct imex ");
  EXPECT_EQ(names({{"NCCL_MNNVL_ENABLE", {"0", "environment"}}}), "data-direct ");
  EXPECT_EQ(names({{"NCCL_MNNVL_ENABLE", {"1", "environment"}}}), "data-direct imex ");
  around.multi_node_nvlink = false;
  EXPECT_EQ(names(), "data-direct ");
  node.hcas.clear();
  EXPECT_EQ(names(), "") << "NCCL uses no HCA";
}

TEST(SurroundingsCheck, NotesAGlobalTrafficClass) {
  const TempDir root;
  write_file(root / "sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=236\n");
  write_file(root / "sys/class/infiniband/mlx5_1/tc/1/traffic_class", "\n");
  const Surroundings around = init::read_surroundings(root.path());
  const fabric::Inventory node = test_support::rails(2);
  const auto found = check(node, around);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "devx-traffic-class");
  EXPECT_NE(found[0].message.find("traffic class 236 of mlx5_0 does"), std::string::npos) << found[0].message;
  EXPECT_EQ(found[0].remedy, "set NCCL_IB_TC=236 and NVSHMEM_IB_TRAFFIC_CLASS=236");
  EXPECT_TRUE(check(node, around, {{"NCCL_IB_TC", {"236", "environment"}}}).empty());
}

TEST(SurroundingsRead, ReadsTheNeedsOfGpus) {
  const test_support::TempDir root;
  auto around = init::read_surroundings(root.path());
  EXPECT_EQ(around.data_direct, 0U);
  EXPECT_EQ(around.imex_channel, false);
  EXPECT_EQ(around.gdrdrv, false);
  EXPECT_EQ(around.peer_mapping, std::nullopt);
  for (const auto& [name, vendor, device] :
       {std::tuple("0000:01:00.0", "0x15b3", "0x2100"), std::tuple("0001:01:00.0", "0x15b3", "0x2100"),
        std::tuple("0002:01:00.0", "0x15b3", "0x1023"), std::tuple("0003:01:00.0", "0x10de", "0x2100")}) {
    write_file(root / "sys/bus/pci/devices/" + name + "/vendor", std::string(vendor) + "\n");
    write_file(root / "sys/bus/pci/devices/" + name + "/device", std::string(device) + "\n");
  }
  write_file(root / "proc/driver/nvidia/params", "EnableMSI: 1\nRegistryDwords: \"\"\n");
  write_file(root / "proc/devices", "Character devices:\n234 nvidia-caps-imex-channels\n");
  const std::string information = root / "proc/driver/nvidia/gpus/0008:01:00.0/information";
  write_file(information, "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 18\n");
  std::filesystem::create_directories(root / "dev/nvidia-caps-imex-channels");
  around = init::read_surroundings(root.path());
  EXPECT_EQ(around.data_direct, 2U);
  EXPECT_EQ(around.peer_mapping, false);
  EXPECT_FALSE(around.multi_node_nvlink) << "the driver registers the channels for every GPU";
  EXPECT_EQ(around.imex_channel, false) << "the directory is empty";
  write_file(information, "Model: \t\t NVIDIA GB300\nIRQ: 18\n");
  write_file(root / "proc/driver/nvidia/params", "RegistryDwords: \"RMx=1;PeerMappingOverride=1;\"\n");
  write_file(root / "dev/nvidia-caps-imex-channels/channel0", "");
  write_file(root / "dev/gdrdrv", "");
  around = init::read_surroundings(root.path());
  EXPECT_TRUE(around.multi_node_nvlink);
  EXPECT_EQ(around.imex_channel, true);
  EXPECT_EQ(around.gdrdrv, true);
  EXPECT_EQ(around.peer_mapping, true);
  write_file(root / "proc/devices", "234 nvidia-caps\n");
  EXPECT_FALSE(init::read_surroundings(root.path()).multi_node_nvlink);
}

TEST(SurroundingsRead, ReadsFilesBelowARoot) {
  const test_support::TempDir root;
  write_file(root / "proc/self/cgroup", "0::/pod/trainer\n");
  write_file(root / "sys/fs/cgroup/rdma.max", "mlx5_0 hca_handle=7 hca_object=max\n");
  write_file(root / "sys/fs/cgroup/pod/rdma.max", "mlx5_0 hca_handle=max hca_object=9\nmlx5_1 hca_handle=x\n");
  write_file(root / "sys/fs/cgroup/pod/trainer/rdma.max", "mlx5_0 hca_handle=2 hca_object=2000\n\nmlx5_2\n");
  write_file(root / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64\n");
  write_file(root / "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  auto around = init::read_surroundings(root.path());
  EXPECT_EQ(around.rdma_limits["mlx5_0"].handles, 2U);
  EXPECT_EQ(around.rdma_limits["mlx5_0"].objects, 9U);
  EXPECT_EQ(around.rdma_limits["mlx5_1"].handles, std::nullopt);
  EXPECT_FALSE(around.rdma_limits.contains("mlx5_2"));
  EXPECT_TRUE(around.nvidia && around.open_module);
  EXPECT_FALSE(around.peer_memory);
  EXPECT_EQ(around.kernel, "6.1.0-18-amd64");
  EXPECT_FALSE(around.shared_memory) << "/dev/shm belongs to this machine";
  write_file(root / "sys/module/nvidia_peermem/version", "535");
  write_file(root / "proc/self/cgroup", "3:rdma:/a\n2:cpu:/b\n");
  write_file(root / "sys/fs/cgroup/rdma/a/rdma.max", "mlx5_3 hca_handle=1 hca_object=1\n");
  around = init::read_surroundings(root.path());
  EXPECT_TRUE(around.peer_memory);
  EXPECT_EQ(around.rdma_limits["mlx5_3"].objects, 1U);
  EXPECT_FALSE(around.rdma_limits.contains("mlx5_0"));
}

TEST(SurroundingsRead, ReadsThisMachine) {
  const auto around = init::read_surroundings("");
  EXPECT_TRUE(around.open_files);
  EXPECT_TRUE(around.refused.empty()) << "the tests run without a filter for these calls";
}

// The files of an image for libibverbs.

#if defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
constexpr std::uint16_t kOther = EM_X86_64;
#else
constexpr std::uint16_t kMachine = EM_X86_64;
constexpr std::uint16_t kOther = EM_AARCH64;
#endif

std::string library(std::string_view text = "", std::uint16_t machine = kMachine) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_type = ET_DYN;
  header.e_machine = machine;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(text);
}

std::string verbs(unsigned abi) {
  const std::string name = "lib%s-rdmav" + std::to_string(abi) + ".so";
  return library('\0' + name + '\0' + "/usr/lib64/libibverbs/" + name + '\0');
}

class ImageFiles : public testing::Test {
 protected:
  ImageFiles() : node_(test_support::rails(2)) {
    for (fabric::Hca& hca : node_.hcas)
      hca.driver = "mlx5_core";
  }

  void lay_out(unsigned verbs_abi, unsigned provider_abi) {
    write_file(root_ / "usr/lib64/libibverbs.so.1.14", verbs(verbs_abi));
    std::filesystem::create_symlink("/usr/lib64/libibverbs.so.1.14", root_ / "usr/lib64/libibverbs.so.1");
    write_file(root_ / provider(provider_abi), library());
    write_file(root_ / "etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    write_file(root_ / "etc/os-release", "NAME=x\nID=rocky\nID_LIKE=\"rhel centos fedora\"\n");
  }
  static std::string provider(unsigned abi) {
    return "usr/lib64/libibverbs/libmlx5-rdmav" + std::to_string(abi) + ".so";
  }

  std::vector<Check> checks(bool efa = false) {
    auto decision = init::decide(node_, {}, {});
    decision.efa = efa;
    return init::check_image(node_, decision, init::read_image(root_.path(), efa));
  }
  // Expects one finding with that verdict and that part in its message. A bad finding has a remedy.
  void expect(Verdict verdict, std::string_view part, std::string_view remedy = "") {
    const auto found = checks();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].verdict, verdict);
    EXPECT_NE(found[0].message.find(part), std::string::npos) << found[0].message;
    EXPECT_NE(found[0].remedy.find(remedy), std::string::npos) << found[0].remedy;
    EXPECT_EQ(found[0].remedy.empty(), verdict != Verdict::kBad);
  }

  TempDir root_;
  fabric::Inventory node_;
};

TEST_F(ImageFiles, AreGoodWithLibibverbsAndProviders) {
  lay_out(34, 34);
  expect(Verdict::kGood, "/usr/lib64/libibverbs.so.1 has the provider mlx5 (private ABI 34)");
  write_file(root_ / "sys/class/infiniband_verbs/uverbs0/dev", "231:192");  // a view of sysfs
  const auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "abi_version");
  EXPECT_EQ(found[0].verdict, Verdict::kBad);
  write_file(root_ / "sys/class/infiniband_verbs/abi_version", "6");
  expect(Verdict::kGood, "mlx5");
}

// The files of Debian's packages libucx0 1.23.0~rc1-1 (sid), and the one that 1.18.1 (trixie) has beside them.
TEST_F(ImageFiles, AreNotedWithUcxWithoutVerbs) {
  lay_out(34, 34);
  write_file(root_ / "usr/lib64/libuct.so.0", library());
  EXPECT_EQ(checks().size(), 1U) << "its modules may be elsewhere";
  for (const char* module : {"libuct_cma.so.0", "libuct_rocm.so.0", "libucx_perftest_mad.so.0"})
    write_file(root_ / "usr/lib64/ucx/" + module, library());
  const auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].verdict, Verdict::kSlow);
  EXPECT_EQ(found[1].message,
            "/usr/lib64/ucx has modules of UCX, but no libuct_ib.so: this UCX uses no HCA, and reports no error");
  write_file(root_ / "usr/lib64/ucx/libuct_ib_mlx5.so.0", library());
  EXPECT_EQ(checks().size(), 2U);
  write_file(root_ / "usr/lib64/ucx/libuct_ib.so.0", library());
  EXPECT_EQ(checks().size(), 1U);
}

TEST_F(ImageFiles, AreNotedWithLibfabricAndWithoutLocalhost) {
  lay_out(34, 34);
  EXPECT_EQ(checks().size(), 1U) << "no libfabric";
  write_file(root_ / "usr/lib64/libfabric.so.1", library());
  const auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].verdict, Verdict::kSlow);
  EXPECT_EQ(found[1].message,
            "`localhost` does not resolve here: /usr/lib64/libfabric.so.1 reports no verbs;ofi_rxm, without an error");
  const std::pair<const char*, const char*> resolved[] = {
      {"etc/hosts", "# hosts\n::1 x localhost\n"},
      {"etc/resolv.conf", "search x\nnameserver 10.0.0.1\n"},
      {"etc/nsswitch.conf", "hosts: files myhostname\n"},
      {"etc/nsswitch.conf", "hosts: resolve [!UNAVAIL=return] dns"}};
  for (const auto& [path, text] : resolved) {
    write_file(root_ / path, text);
    EXPECT_EQ(checks().size(), 1U) << text;
    std::filesystem::remove(root_ / path);
  }
  write_file(root_ / "etc/hosts", "# localhost\n10.0.0.1 pod\n");
  write_file(root_ / "etc/nsswitch.conf", "hosts: files dns\npasswd: myhostname\n");
  EXPECT_EQ(checks().size(), 2U);
  EXPECT_EQ(checks(true).size(), 2U) << "EFA: libibverbs and the missing plugin";
}

TEST_F(ImageFiles, AreBadWithoutLibibverbs) {
  expect(Verdict::kNote, "no libibverbs.so.1, and no C library");
  write_file(root_ / "lib/x86_64-linux-gnu/libc.so.6", library(""));
  write_file(root_ / "lib64/libc.so.6", library(""));
  write_file(root_ / "etc/os-release", "ID=ubuntu\nID_LIKE=debian\n");
  expect(Verdict::kBad, "no libibverbs.so.1", "apt-get install libibverbs1 ibverbs-providers");
  write_file(root_ / "opt/nvidia/entrypoint.d/10-banner.sh", "");
  expect(Verdict::kBad, "no libibverbs.so.1", "NVIDIA's");
  write_file(root_ / "usr/lib/libibverbs.so.1", "text");
  expect(Verdict::kBad, "/usr/lib/libibverbs.so.1 is not an ELF file");
  write_file(root_ / "usr/lib/libibverbs.so.1", library("", kOther));
  expect(Verdict::kBad, "is of another architecture");
  node_.hcas.clear();
  EXPECT_TRUE(checks().empty()) << "no HCA needs it";
}

TEST_F(ImageFiles, AreBadWithoutAProviderOfTheAbi) {
  lay_out(34, 25);
  expect(Verdict::kBad, "libmlx5-rdmav25.so has the private ABI 25, but /usr/lib64/libibverbs.so.1 needs 34",
         "dnf install libibverbs");
  std::filesystem::remove(root_ / provider(25));
  expect(Verdict::kBad, "no libmlx5-rdmav34.so: libibverbs will not find mlx5_0, mlx5_1");
  write_file(root_ / provider(34), library());
  std::filesystem::remove(root_ / "etc/libibverbs.d/mlx5.driver");
  expect(Verdict::kBad, "no file in /etc/libibverbs.d has the line `driver mlx5`");
}

TEST_F(ImageFiles, AreNotBadForUnusedHcas) {
  lay_out(34, 34);
  node_.hcas[1].driver = "bnxt_en";
  node_.hcas[1].ports[0].rate = "100 Gb/sec";
  const auto found = checks();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].verdict, Verdict::kNote);
  EXPECT_NE(found[0].message.find("no libbnxt_re-rdmav34.so"), std::string::npos) << found[0].message;
  EXPECT_EQ(found[1].verdict, Verdict::kGood);
}

TEST_F(ImageFiles, AreRefusedIfHostile) {
  lay_out(34, 34);
  const std::string path = root_ / provider(34);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0644), 0);
  expect(Verdict::kBad, "is not a regular file");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("libmlx5-rdmav34.so", path);
  expect(Verdict::kBad, "is not a regular file");
  std::filesystem::remove(path);
  std::string cut = library();
  reinterpret_cast<Elf64_Ehdr*>(cut.data())->e_shoff = 1 << 20;
  write_file(path, cut);
  expect(Verdict::kBad, "is truncated");
  write_file(path, cut.substr(0, 20));
  expect(Verdict::kBad, "is not an ELF file");
  // The ABI of a library above the read limit is not known.
  ASSERT_EQ(::truncate((root_ / "usr/lib64/libibverbs.so.1.14").c_str(), 1LL << 40), 0);
  expect(Verdict::kNote, "does not contain the private ABI");
}

TEST_F(ImageFiles, AreUnknownWithAnEndlessDirectory) {
  lay_out(34, 34);
  std::filesystem::remove(root_ / "etc/libibverbs.d/mlx5.driver");
  for (int i = 0; i < 200; ++i)
    write_file(root_ / ("etc/libibverbs.d/" + std::to_string(i)), "");
  expect(Verdict::kNote, "is not known: /etc/libibverbs.d: File too large");
}

TEST_F(ImageFiles, AreCheckedForEfa) {
  lay_out(34, 34);
  auto found = checks(true);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_NE(found[1].message.find("no libfabric.so.1"), std::string::npos) << found[1].message;
  EXPECT_NE(found[2].message.find("no libnccl-net.so (aws-ofi-nccl)"), std::string::npos) << found[2].message;
  EXPECT_EQ(found[2].verdict, Verdict::kBad);
  write_file(root_ / "opt/amazon/efa/lib/libfabric.so.1", library());
  write_file(root_ / "opt/amazon/ofi-nccl/lib64/libnccl-net-ofi.so", library());
  found = checks(true);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].verdict, Verdict::kGood) << found[1].message;
}

}  // namespace
