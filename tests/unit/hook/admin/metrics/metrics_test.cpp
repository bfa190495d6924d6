#include "hook/admin/metrics/metrics.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/failure.hpp"
#include "base/text_digest.hpp"
#include "hook/ledger/grant.hpp"
#include "hook/program/commands.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using namespace test_support;

Counters open_counters(const std::string& directory) {
  return must(Counters::open(directory));
}

void add_one(const Counters& counters, std::string_view name, const Labels& labels, std::uint64_t delta = 1) {
  counters.add({Increment{name, labels, delta}});
}

// Returns the lines of the text without HELP and TYPE.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
    if (lines.back().starts_with("#")) lines.pop_back();
  }
  return lines;
}

std::vector<std::string> counted(const std::string& directory) {
  return lines_of(prometheus_text(must(open_counters(directory).read())));
}

using Lines = std::vector<std::string>;

TEST(Counters, CountsBySeries) {
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  add_one(counters, kGrantsTotal, {{"engine", "podman"}, {"mode", "hca"}});
  counters.add({{.name = kGrantsTotal, .labels = {{"engine", "podman"}, {"mode", "hca"}}},
                {.name = kGrantsTotal, .labels = {{"engine", "docker"}, {"mode", "hca"}}},
                {.name = kDurationTotal, .labels = {{"stage", "createRuntime"}, {"step", "book"}}, .delta = 1500},
                {.name = kReleasesTotal, .labels = {}}});
  add_one(open_counters(dir.path()), kReleasesTotal, {}, 2);
  EXPECT_EQ(counted(dir.path()),
            (Lines{R"(rdma_hook_duration_microseconds_total{stage="createRuntime",step="book"} 1500)",
                   R"(rdma_hook_grants_total{engine="docker",mode="hca"} 1)",
                   R"(rdma_hook_grants_total{engine="podman",mode="hca"} 2)", "rdma_hook_returns_total 3"}));
  struct stat info {};
  ASSERT_EQ(stat((dir / "metrics").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST(Counters, AddsHelpToItsSeries) {
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  add_one(counters, kReleasesTotal, {});
  add_one(counters, "some_other", {});
  EXPECT_EQ(prometheus_text(must(counters.read())),
            "# HELP rdma_hook_returns_total Released grants, by reason.\n# TYPE rdma_hook_returns_total counter\n"
            "rdma_hook_returns_total 1\n# TYPE some_other counter\nsome_other 1\n");
}

TEST(Counters, CleansHostileValues) {
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  add_one(counters, "a", {{"x", std::string("1\n2\0=\"\xff", 7)}});
  add_one(counters, "a", {{"x", std::string(200, 'l')}});  // too long
  add_one(counters, "a", {{"x", std::string(116, 'l')}});  // exactly the free space
  add_one(counters, "a", {{"x", std::string(117, 'l')}});  // one byte more
  add_one(counters, "0a", {});
  add_one(counters, "", {});
  add_one(counters, "b\nc", {});
  add_one(counters, "b", {{"x=", "1"}});
  add_one(counters, "b", {{"", "1"}});
  EXPECT_EQ(counted(dir.path()), (Lines{R"(a{x="1_2_=\"_"} 1)", "a{x=\"" + std::string(116, 'l') + "\"} 1"}));
}

// A call changes a few of many series. The other series stay unchanged.
TEST(Counters, KeepsOtherSeriesAndStopsAtLimit) {
  const TempDir few;
  const Counters others = open_counters(few.path());
  for (const char* const name : {"a", "b", "c", "d", "e"})
    add_one(others, name, {}, 10);
  others.add({{.name = "d", .labels = {}}, {.name = "b", .labels = {}, .delta = 2}, {.name = "f", .labels = {}}});
  others.add({{.name = "", .labels = {}}});
  EXPECT_EQ(counted(few.path()), (Lines{"a 10", "b 12", "c 10", "d 11", "e 10", "f 1"}));
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  for (int i = 0; i < 600; ++i)
    add_one(counters, "a", {{"x", std::to_string(i)}});
  add_one(counters, "a", {{"x", "511"}});
  const auto samples = must(counters.read());
  ASSERT_EQ(samples.size(), 512U);
  EXPECT_EQ(samples.at(511).value, 2U);
  EXPECT_EQ(std::filesystem::file_size(dir / "metrics"), 513U * 128U);
}

TEST(Counters, StartsAgainFromDamagedFile) {
  const Lines anew{"b 1"};
  const Lines kept{"a 7", "b 1"};
  // `expected` holds after `b` is counted once more.
  const std::tuple<const char*, std::function<std::string(std::string)>, Lines> rows[] = {
      {"as it was", [](std::string t) { return t; }, kept},
      {"empty", [](const std::string&) { return std::string(); }, anew},
      {"text", [](const std::string&) { return std::string(500, 'x'); }, anew},
      {"zeros", [](const std::string& t) { return std::string(t.size(), '\0'); }, anew},
      {"a control character in a key", [](std::string t) { return t.replace(129, 1, "\x01"); }, anew},
      {"another format", [](std::string t) { return t.replace(18, 1, "2"); }, anew},
      {"a name that begins with a control character", [](std::string t) { return t.replace(128, 1, "\x01"); }, anew},
      {"something behind a key", [](std::string t) { return t.replace(128 + 100, 1, "x"); }, anew},
      {"an empty record", [](const std::string& t) { return t + std::string(128, '\0'); }, anew},
      {"a record that is cut", [](const std::string& t) { return t + "a_cut_name"; }, kept},
      {"a cut first record", [](const std::string& t) { return t.substr(0, 100); }, anew},
      {"no name, though printable", [](std::string t) { return t.replace(128, 1, "-"); }, anew}};
  for (const auto& [name, change, expected] : rows) {
    const TempDir dir;
    add_one(open_counters(dir.path()), "a", {}, 7);
    write_file(dir / "metrics", change(test_support::read_file(dir / "metrics")));
    EXPECT_TRUE(open_counters(dir.path()).read().has_value()) << name;
    add_one(open_counters(dir.path()), "b", {});
    EXPECT_EQ(counted(dir.path()), expected) << name;
  }
}

TEST(Counters, WaitsOnlyBrieflyForLock) {
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  add_one(counters, "a", {});
  const int other = open((dir / "metrics").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  add_one(counters, "a", {});  // returns although the lock is never released
  EXPECT_EQ(counters.read().error().code, EAGAIN);
  close(other);
  add_one(counters, "a", {});
  EXPECT_EQ(counted(dir.path()), Lines{"a 2"});
}

TEST(Counters, CountsIncrementsOfManyProcesses) {
  const TempDir dir;
  constexpr std::uint64_t kProcesses = 4;
  constexpr std::uint64_t kTimes = 200;
  for (std::uint64_t i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    const auto counters = Counters::open(dir.path());
    for (std::uint64_t n = 0; counters && n < kTimes; ++n)
      counters->add({{.name = "all", .labels = {}}, {.name = "each", .labels = {{"i", std::to_string(i)}}}});
    _exit(counters ? 0 : 1);
  }
  for (std::uint64_t i = 0; i < kProcesses; ++i) {
    int status = -1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  const auto samples = must(open_counters(dir.path()).read());
  std::uint64_t all = 0;
  std::uint64_t sum = 0;
  for (const Sample& sample : samples)
    (sample.name == "all" ? all : sum) += sample.value;
  EXPECT_EQ(samples.size(), 1U + kProcesses);
  EXPECT_EQ(all, sum) << "the increments of one call are counted together";
  // Best effort: a process that waits too long on a busy machine does not count.
  EXPECT_LE(all, kProcesses * kTimes);
  EXPECT_GE(all, kTimes);
}

TEST(Counters, RefusesForeignFile) {
  const TempDir dir;
  EXPECT_EQ(Counters::open(dir / "none").error().code, ENOENT);
  std::filesystem::create_symlink(dir / "elsewhere", dir / "metrics");
  EXPECT_FALSE(Counters::open(dir.path()).has_value());
  EXPECT_FALSE(std::filesystem::exists(dir / "elsewhere"));
  std::filesystem::remove(dir / "metrics");
  ASSERT_EQ(mkfifo((dir / "metrics").c_str(), 0600), 0);
  EXPECT_EQ(Counters::open(dir.path()).error().message,
            "cannot use `" + dir.path() + "/metrics`: it is not a regular file of root");
  std::filesystem::remove(dir / "metrics");
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  EXPECT_FALSE(Counters::open(dir.path()).has_value());
}

TEST(Histogram, AddsBucketsUp) {
  const TempDir dir;
  const Counters counters = open_counters(dir.path());
  for (const std::uint64_t microseconds : {0U, 1000U, 1001U, 10'000'000U, 10'000'001U})
    counters.add(observed_stage("poststop", true, microseconds));
  counters.add(observed_stage("poststop", false, 5));
  add_one(counters, kReleasesTotal, {{"reason", "poststop"}});
  const std::string text = prometheus_text(with_histograms(must(counters.read())));
  const std::string name = "rdma_hook_stage_duration_microseconds";
  EXPECT_EQ(text.find("# TYPE " + name + " histogram\n"), text.rfind("# TYPE " + name)) << text;
  EXPECT_TRUE(text.starts_with("# HELP rdma_hook_returns_total ")) << text;
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 1U + 2 * (14 + 2));
  const std::string of_done = R"({le="X",result="done",stage="poststop"} )";
  const char* const bounds[] = {"1000",   "2000",   "5000",    "10000",   "20000",   "50000",    "100000",
                                "200000", "500000", "1000000", "2000000", "5000000", "10000000", "+Inf"};
  const int totals[] = {2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 5};
  for (std::size_t i = 0; i < std::size(bounds); ++i) {
    std::string expected = name + "_bucket" + of_done + std::to_string(totals[i]);
    EXPECT_EQ(lines[1 + i], expected.replace(expected.find('X'), 1, bounds[i]));
  }
  EXPECT_EQ(lines[15], name + R"(_bucket{le="1000",result="failed",stage="poststop"} 1)");
  EXPECT_EQ(lines[29], name + R"(_count{result="done",stage="poststop"} 5)");
  EXPECT_EQ(lines[31], name + R"(_sum{result="done",stage="poststop"} 20002002)");
}

TEST(PrometheusText, WritesEachNameOnceInOrder) {
  EXPECT_EQ(prometheus_text({}), "");
  const std::vector<Sample> samples{
      {.name = "b", .labels = {{"x", "2"}}, .help = "Bees.", .value = 2},
      {.name = "a", .labels = {}, .type = Sample::Type::kCounter, .help = "An a.\nOr \\ \"two\".", .value = UINT64_MAX},
      {.name = "b", .labels = {{"y", "1"}, {"x", "1"}}, .help = "Bees.", .value = 0},
      {.name = "b", .labels = {{"x", "2"}}, .help = "Bees.", .value = 3}};
  EXPECT_EQ(prometheus_text(samples),
            "# HELP a An a.\\nOr \\\\ \"two\".\n# TYPE a counter\na 18446744073709551615\n"
            "# HELP b Bees.\n# TYPE b gauge\nb{x=\"1\",y=\"1\"} 0\nb{x=\"2\"} 2\n");
}

TEST(PrometheusText, EscapesLabelValues) {
  const std::pair<std::string, std::string> rows[] = {{"plain", "plain"},
                                                      {"a\\b", "a\\\\b"},
                                                      {"a\"b", "a\\\"b"},
                                                      {"a\nb", "a\\nb"},
                                                      {"\\\n", "\\\\\\n"},
                                                      {"tab\there", "tab?here"},
                                                      {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                                                      {"\xff", "?"},
                                                      {"", ""}};
  for (const auto& [value, expected] : rows)
    EXPECT_EQ(prometheus_text({{.name = "a", .labels = {{"x", value}}}}),
              "# TYPE a gauge\na{x=\"" + expected + "\"} 0\n");
}

Grant make_grant(const std::string& key, const std::vector<std::string>& hcas, const std::vector<std::string>& ids) {
  Grant grant;
  grant.owner = {Owner::Kind::kContainer, key, "container " + key, std::nullopt};
  for (const std::string& name : hcas)
    grant.hcas.push_back({.name = name, .limit = std::nullopt});
  for (const std::string& id : ids)
    grant.users.push_back({"key-" + id, id, std::nullopt});
  return grant;
}

std::string port_counters(const std::string& root, const std::vector<std::string>& hcas) {
  std::string all;
  write_port_counters(root, hcas, [&](const std::string& text) { all += text; });
  return all;
}

std::string metrics_text(const std::string& ledger, const Held& held, const std::string& root) {
  std::string all;
  EXPECT_TRUE(write_metrics(ledger, held, root, [&](const std::string& text) { all += text; }));
  return all;
}

TEST(Held, SumsGrantsByHcaAndMode) {
  Grant pod = make_grant("pod", {"mlx5_0", "mlx5_1"}, {"one", "two"});
  pod.hcas[1] = {.name = "mlx5_1", .mode = Mode::kSharedMulti, .units = 3, .limit = 16};
  pod.since = 2;
  Grant older = make_grant("older", {}, {"three"});
  older.hcas.push_back({.name = "mlx5_1", .mode = Mode::kSharedMulti, .units = 1, .limit = 8});
  older.since = 1;
  Held held;
  for (const Grant& grant : {pod, make_grant("web", {"mlx5_0"}, {"web-1"}), make_grant("new", {"mlx5_2"}, {}), older})
    held.add(grant);
  EXPECT_EQ(
      lines_of(prometheus_text(held.samples())),
      (Lines{
          R"(rdma_hook_holders{hca="mlx5_0",mode="hca"} 2)", R"(rdma_hook_holders{hca="mlx5_1",mode="shared-multi"} 2)",
          R"(rdma_hook_holders{hca="mlx5_2",mode="hca"} 1)", R"(rdma_hook_limit{hca="mlx5_1",mode="shared-multi"} 16)",
          R"(rdma_hook_units{hca="mlx5_0",mode="hca"} 2)", R"(rdma_hook_units{hca="mlx5_1",mode="shared-multi"} 4)",
          R"(rdma_hook_units{hca="mlx5_2",mode="hca"} 1)"}));
  EXPECT_EQ(held.hcas(), (Lines{"mlx5_0", "mlx5_1", "mlx5_2"}));
}

TEST(GrantInfo, ListsHcasOfEachContainer) {
  Grant pod = make_grant("pod", {"mlx5_0", "mlx5_1"}, {"one", "two", "one"});
  pod.owner.netns = NetnsIdentity{4, 17, "/var/run/netns/cni-1"};
  EXPECT_EQ(
      lines_of(grant_info(pod)),
      (Lines{R"(rdma_hook_grant_info{container="one",grant="pod",hca="mlx5_0",netns="/var/run/netns/cni-1"} 1)",
             R"(rdma_hook_grant_info{container="two",grant="pod",hca="mlx5_0",netns="/var/run/netns/cni-1"} 1)",
             R"(rdma_hook_grant_info{container="one",grant="pod",hca="mlx5_1",netns="/var/run/netns/cni-1"} 1)",
             R"(rdma_hook_grant_info{container="two",grant="pod",hca="mlx5_1",netns="/var/run/netns/cni-1"} 1)"}));
  EXPECT_EQ(grant_info(make_grant("new", {"mlx5_2"}, {})),
            "rdma_hook_grant_info{container=\"\",grant=\"new\",hca=\"mlx5_2\",netns=\"\"} 1\n");
  EXPECT_EQ(grant_info_head(),
            "# HELP rdma_hook_grant_info HCAs of each container.\n# TYPE rdma_hook_grant_info gauge\n");
}

TEST(GrantInfo, MasksOnlyTokens) {
  const std::string token(32, 'a');
  Grant grant = make_grant(token_owner(token).key, {"mlx5_0"}, {"one"});
  const std::string info = grant_info(grant);
  EXPECT_EQ(info.find(token), std::string::npos) << info;
  EXPECT_NE(info.find("grant=\"" + shown_key(grant.owner.key) + "\""), std::string::npos) << info;
  const std::string shown = shown_key("token-0123456789abcdef0123456789abcdef");
  EXPECT_EQ(shown, "token-" + text_digest("token-0123456789abcdef0123456789abcdef"));
  EXPECT_NE(shown, shown_key("token-0123456789abcdef0123456789abcdee"));
  EXPECT_EQ(shown_key("netns-4-17"), "netns-4-17");
  EXPECT_EQ(shown_key("container-token-1-00"), "container-token-1-00");
}

TEST(PortCounters, ReadsBothGroups) {
  const TempDir root;
  const std::string hca = "sys/class/infiniband/mlx5_0/";
  write_file(root / (hca + "ports/1/counters/port_xmit_data"), "123456789012345\n");
  write_file(root / (hca + "ports/1/counters/VL15_dropped"), "N/A (no PMA)\n");
  write_file(root / (hca + "ports/1/counters/negative"), "-1\n");
  write_file(root / (hca + "ports/1/counters/huge"), "18446744073709551616\n");
  write_file(root / (hca + "ports/1/counters/empty"), "");
  write_file(root / (hca + "ports/1/hw_counters/out_of_sequence"), "0\n");
  write_file(root / (hca + "ports/1/hw_counters/lifespan"), "10\n");
  write_file(root / (hca + "ports/2/counters/port_rcv_data"), "7\n");
  write_file(root / "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "8\n");
  write_file(root / "sys/class/ports/1/counters/outside", "9\n");
  EXPECT_EQ(lines_of(port_counters(root.path(), {"mlx5_0", "mlx5_7", "..", "mlx5_0/ports"})),
            (Lines{R"(rdma_port_counter{counter="port_xmit_data",hca="mlx5_0",port="1"} 123456789012345)",
                   R"(rdma_port_counter{counter="out_of_sequence",hca="mlx5_0",port="1"} 0)",
                   R"(rdma_port_counter{counter="port_rcv_data",hca="mlx5_0",port="2"} 7)"}));
  EXPECT_EQ(port_counters(root / "none", {"mlx5_0"}), "");
}

TEST(MetricsText, ContainsCountersGaugesAndPorts) {
  const TempDir root;
  write_file(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "8\n");
  const TempDir ledger;
  add_one(open_counters(ledger.path()), kFailuresTotal,
          {{"stage", "prestart"}, {"reason", std::string(to_string(FailureReason::kDevices))}});
  Held held;
  held.add(make_grant("web", {"mlx5_0"}, {"web-1"}));
  EXPECT_EQ(metrics_text(root / "none", {}, root / "none"), "") << "no ledger yet";
  EXPECT_EQ(metrics_text(ledger.path(), held, root.path()),
            "# HELP rdma_hook_failures_total Failed calls of each stage of the hook, by reason.\n# TYPE "
            "rdma_hook_failures_total "
            "counter\n"
            "rdma_hook_failures_total{reason=\"devices\",stage=\"prestart\"} 1\n"
            "# HELP rdma_hook_holders Grants that hold an HCA.\n# TYPE rdma_hook_holders gauge\n"
            "rdma_hook_holders{hca=\"mlx5_0\",mode=\"hca\"} 1\n"
            "# HELP rdma_hook_units Granted units of an HCA.\n# TYPE rdma_hook_units gauge\n"
            "rdma_hook_units{hca=\"mlx5_0\",mode=\"hca\"} 1\n"
            "# HELP rdma_port_counter The kernel's counter of an HCA's port; port_*_data counts units of 4 bytes.\n"
            "# TYPE rdma_port_counter counter\n"
            "rdma_port_counter{counter=\"port_rcv_data\",hca=\"mlx5_0\",port=\"1\"} 8\n");
}

// In a separate mount namespace: the command would fail if it created a file on the read-only file system.
int metrics_of_read_only(const std::string& ledger) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int kCannot = 77;
    const char* path = ledger.c_str();
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(path, path, nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      ::_exit(kCannot);
    Options options;
    options.command = Command::kMetrics;
    options.node.ledger = ledger;
    const int code = run_command(options);
    std::fflush(stdout);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MetricsCommand, ReadsReadOnlyLedger) {
  const TempDir root;
  const std::string path = root / "ledger";
  ASSERT_TRUE(Ledger::open(path));
  // A ledger of another version: without some directories, and without counters.
  std::filesystem::remove_all(path + "/views");
  std::filesystem::remove(path + "/place");
  testing::internal::CaptureStderr();
  const int code = metrics_of_read_only(path);
  const std::string errors = testing::internal::GetCapturedStderr();
  if (code == 77) GTEST_SKIP() << "mount(2) is not allowed here";
  EXPECT_EQ(code, 0);
  EXPECT_EQ(errors, "");
}

TEST(MetricsCommand, DoesNotChangeLedger) {
  const TempDir root;
  Options options;
  options.command = Command::kMetrics;
  options.node.ledger = root / "none";
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_command(options), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rdma-hook: ledger `" + options.node.ledger + "` does not exist: no grant was made on this node yet\n");
  EXPECT_FALSE(std::filesystem::exists(options.node.ledger));
  std::filesystem::create_directory(options.node.ledger);
  std::filesystem::permissions(options.node.ledger, std::filesystem::perms::owner_all);
  EXPECT_EQ(run_command(options), 0);
  EXPECT_TRUE(std::filesystem::is_empty(options.node.ledger));
}

}  // namespace
}  // namespace hook
