// CNI IPAM plugins: their input, their results, and the helper that runs them, with Debian's host-local and with
// plugins that misbehave.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/text.hpp"
#include "hook/rails/address/ipam.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using namespace test_support;

constexpr const char* kHostLocal = "/usr/lib/cni/host-local";

std::string shown(const IpamResult& result) {
  std::string text;
  for (const auto& one : result.addresses) {
    text += fmt::format("{}/{}", to_string(one.address), one.prefix);
    text += one.gateway ? " gw " + to_string(*one.gateway) + "; " : "; ";
  }
  for (const auto& one : result.routes) {
    text += fmt::format("route {}/{}", to_string(one.destination), one.prefix);
    text += one.gateway ? " via " + to_string(*one.gateway) + "; " : "; ";
  }
  return text;
}

std::string shown(const base::Result<IpamResult>& result) {
  return result ? shown(*result) : "error: " + result.error().message;
}

TEST(IpamResults, AreParsed) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"version 0.3.1",
       R"({"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.1.0.2/24","gateway":"10.1.0.1"}],"dns":{}})",
       "10.1.0.2/24 gw 10.1.0.1; "},
      {"version 1.0.0", R"({"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"},{"address":"fd00::2/64"}]})",
       "10.1.0.2/24; fd00::2/64; "},
      {"version 1.1.0",
       R"({"cniVersion":"1.1.0","interfaces":[],"ips":[{"interface":0,"address":"10.1.0.2/16","gateway":null}],
         "routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","mtu":9000,"table":7},{"dst":"10.9.1.2/16"},{"dst":"::/0"}]})",
       "10.1.0.2/16; route 0.0.0.0/0 via 10.1.0.1; route 10.9.0.0/16; route ::/0; "},
      {"Go's null", R"({"ips":[{"address":"10.1.0.2/32"}],"routes":null})", "10.1.0.2/32; "},
      {"mapped form", R"({"ips":[{"address":"::ffff:10.1.0.2/120"}]})", "10.1.0.2/24; "},
      {"error", R"({"cniVersion":"1.0.0","code":11,"msg":"all taken","details":"10.1.0.1-2"})",
       "error: all taken; 10.1.0.1-2 (CNI error 11)"},
      {"error of odd types", R"({"code":"x","msg":7})", "error:  (CNI error without number)"},
      {"no addresses", R"({"cniVersion":"1.0.0","ips":[]})", "error: its result has no address"},
      {"no object", R"([1])", "error: its result is no JSON object"},
      {"no prefix", R"({"ips":[{"address":"10.1.0.2"}]})", "error: `10.1.0.2` is no address with a prefix"},
      {"long prefix", R"({"ips":[{"address":"10.1.0.2/33"}]})", "error: `10.1.0.2/33` is no address with a prefix"},
      {"short mapped form", R"({"ips":[{"address":"::ffff:10.1.0.2/64"}]})",
       "error: `::ffff:10.1.0.2/64` is no address with a prefix"},
      {"odd address", R"({"ips":[{"address":7}]})", "error: `` is no address with a prefix"},
      {"odd member", R"({"ips":["10.1.0.2/24"]})", "error: a member of `ips` is no object"},
      {"other family", R"({"ips":[{"address":"10.1.0.2/24","gateway":"fd00::1"}]})",
       "error: `fd00::1` is no gateway of 10.1.0.2"},
      {"odd route", R"({"ips":[{"address":"10.1.0.2/24"}],"routes":[{"dst":"default"}]})",
       "error: `default` is no destination of a route"},
      {"empty", "",
       "error: its result, line 1, column 1: syntax error while parsing value - unexpected end of input; expected '[', "
       "'{', or a literal"}};
  for (const auto& [name, text, expected] : cases)
    EXPECT_EQ(shown(parse_ipam_result(text)), expected) << name;
}

// plugin: with its directory.
IpamCall call(const std::string& plugin, Json ipam = {{"type", "test"}}, std::string container = "c1") {
  return {IpamCall::Command::kAdd,
          plugin.substr(plugin.rfind('/') + 1),
          "fabric",
          std::move(ipam),
          std::move(container),
          "/proc/self/ns/net",
          "net1"};
}

TEST(IpamConfig, HasMembersOfTheSpecification) {
  EXPECT_EQ(ipam_config(call("x", {{"type", "host-local"}, {"ranges", Json::array()}})),
            R"({"cniVersion":"1.0.0","name":"fabric","type":"rdma-hook","ipam":{"type":"host-local","ranges":[]}})");
}

std::vector<IpamProgram> programs_of(const std::vector<IpamCall>& calls, const std::string& directory) {
  std::vector<IpamProgram> programs;
  for (const IpamCall& one : calls)
    programs.push_back({one.plugin, one.network, one.ipam, {directory, "/usr/lib/cni"}, true});
  return programs;
}

// The plugins are shell scripts.
class Ipam : public testing::Test {
 protected:
  std::string script(const std::string& name, const std::string& body) const {
    std::string path = temp_ / name;
    write_file(path, "#!/bin/sh\n" + body);
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    return path;
  }
  std::vector<base::Result<IpamResult>> run(const std::vector<IpamCall>& calls, int timeout_ms = 10000) {
    if (restarts_) helper_ = IpamHelper::start(programs_of(calls, temp_.path())).value();
    return helper_.run(calls, timeout_ms);
  }
  std::string run_one(const IpamCall& one, int timeout_ms = 10000) {
    const auto results = run({one}, timeout_ms);
    return results.size() == 1 ? shown(results[0]) : "not one result";
  }
  std::string run_script(const std::string& body, int timeout_ms = 10000) {
    return run_one(call(script("plugin", body)), timeout_ms);
  }
  // The helper starts first, as in a hook.
  IpamHelper helper_ = IpamHelper::start({}).value();
  bool restarts_ = true;  // start a new helper for each run, with the called plugins as its programs
  const TempDir temp_;
};

const std::string kPluginFailed = "error: cannot get an address for `net1` by IPAM plugin `plugin`: ";

class HostLocal : public Ipam {
 protected:
  void SetUp() override {
    if (access(kHostLocal, X_OK) != 0) GTEST_SKIP() << "no " << kHostLocal << " (containernetworking-plugins)";
  }
  std::vector<IpamCall> calls(int count, IpamCall::Command command, const char* subnet = "10.7.0.0/24") const {
    const Json ranges = Json::array({Json::array({{{"subnet", subnet}, {"gateway", "10.7.0.1"}}})});
    const Json ipam = {{"type", "host-local"}, {"dataDir", temp_ / "data"}, {"ranges", ranges}};
    std::vector<IpamCall> made;
    for (int i = 0; i < count; ++i) {
      made.push_back(call(kHostLocal, ipam));
      made.back().command = command;
      made.back().ifname = "net" + std::to_string(i + 1);
    }
    return made;
  }
};

TEST_F(HostLocal, AllocatesAndReleasesEightAddresses) {
  std::set<std::string> addresses;
  for (const auto& result : run(calls(8, IpamCall::Command::kAdd))) {
    ASSERT_OK(result);
    ASSERT_EQ(result->addresses.size(), 1U);
    EXPECT_EQ(result->addresses[0].prefix, 24U);
    ASSERT_TRUE(result->addresses[0].gateway);
    EXPECT_EQ(to_string(*result->addresses[0].gateway), "10.7.0.1");
    addresses.insert(to_string(result->addresses[0].address));
  }
  EXPECT_EQ(addresses.size(), 8U);
  for (const std::string& address : addresses)
    EXPECT_TRUE(fs::exists(temp_ / ("data/fabric/" + address))) << address;
  for (int round = 0; round < 2; ++round) {  // the second release succeeds too
    for (const auto& result : run(calls(8, IpamCall::Command::kDel)))
      EXPECT_EQ(shown(result), "");
  }
  for (const std::string& address : addresses)
    EXPECT_FALSE(fs::exists(temp_ / ("data/fabric/" + address))) << address;
}

TEST_F(HostLocal, ContinuesAfterAnError) {
  const auto results = run(calls(3, IpamCall::Command::kAdd, "10.7.0.0/30"));
  ASSERT_EQ(results.size(), 3U);
  std::size_t failed = 0;
  for (const auto& result : results) {
    if (result) continue;
    ++failed;
    EXPECT_TRUE(
        has_text(result.error().message, "no IP addresses available in range set: 10.7.0.1-10.7.0.2 (CNI error 999)"));
  }
  EXPECT_EQ(failed, 2U);
}

TEST_F(Ipam, PassesOnlyEnvironmentAndConfiguration) {
  setenv("SECRET", "1", 1);
  const std::string seen = temp_ / "seen";
  const auto result = run_script("{ env | sort; pwd; echo config:; cat; } > " + seen + R"(
echo '{"ips":[{"address":"10.0.0.2/24"}]}')");
  EXPECT_EQ(result, "10.0.0.2/24; ");
  const std::string text = read_file(seen);
  EXPECT_EQ(text.substr(0, text.find("config:")),
            "CNI_COMMAND=ADD\nCNI_CONTAINERID=c1\nCNI_IFNAME=net1\nCNI_NETNS=/proc/self/ns/net\nCNI_PATH=" +
                temp_.path() + "\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/\n/\n");
  EXPECT_TRUE(has_text(text, R"({"cniVersion":"1.0.0","name":"fabric","type":"rdma-hook","ipam":{"type":"test"}})"));
}

TEST(CniArgs, ContainOnlyThePodsIdentity) {
  using Pod = PodIdentity;
  const auto args = [](auto change) {
    Pod pod{"team-a", "main", false, "train-0", "8304765e-fd7e-4968-9144-c42c53be04f4", "3a6a58"};
    change(pod);
    const std::string text = cni_args(pod);
    EXPECT_TRUE(text.empty() || is_cni_args(text)) << text;
    return text;
  };
  const std::string id = ";K8S_POD_INFRA_CONTAINER_ID=3a6a58";
  const std::string uid = ";K8S_POD_UID=8304765e-fd7e-4968-9144-c42c53be04f4";
  const std::string names = "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train-0";
  EXPECT_EQ(args([](Pod&) {}), names + id + uid);
  EXPECT_EQ(args([](Pod& pod) { pod.pod_uid.clear(); }), names + id);
  EXPECT_EQ(args([](Pod& pod) { pod = Pod{}; }), "");
  for (const char* bad : {"a;K8S_POD_NAMESPACE=kube-system", "a=b", "a b", "a\nb", "-a", ".a", "a/b", "\xc3\xa9"}) {
    EXPECT_EQ(args([&](Pod& pod) { pod.sandbox_id = bad; }), names + uid) << bad;
    EXPECT_FALSE(is_cni_args(std::string("IgnoreUnknown=1;K8S_POD_UID=") + bad)) << bad;
  }
  EXPECT_EQ(args([](Pod& pod) { pod.pod_uid = std::string(253, 'u'); }),
            names + id + ";K8S_POD_UID=" + std::string(253, 'u'));
  EXPECT_EQ(args([](Pod& pod) { pod.pod_uid = std::string(254, 'u'); }), names + id);
  for (const char* bad :
       {"", "IgnoreUnknown=1", "K8S_POD_NAME=a", "IgnoreUnknown=1;K8S_POD_NAME=", "IgnoreUnknown=1;IP=a",
        "IgnoreUnknown=1;K8S_POD_NAME", "IgnoreUnknown=1;K8S_POD_NAME=a;K8S_POD_NAME=b"})
    EXPECT_FALSE(is_cni_args(bad)) << bad;
}

TEST_F(Ipam, PassesArgumentsOfTheCall) {
  IpamCall one = call(script("plugin", R"(echo "$CNI_ARGS" >&2; exit 1)"));
  EXPECT_EQ(run_one(one), kPluginFailed + "exit status 1") << "none";
  one.args = "IgnoreUnknown=1;K8S_POD_NAME=a";
  EXPECT_EQ(run_one(one), kPluginFailed + "exit status 1; it wrote: IgnoreUnknown=1\\x3bK8S_POD_NAME=a");
  one.args = "IgnoreUnknown=1;K8S_POD_NAME=a\nLD_PRELOAD=b";
  EXPECT_TRUE(has_text(run_one(one), "is no CNI_ARGS of a pod"));
}

TEST_F(Ipam, ReportsErrorsOfPlugins) {
  EXPECT_EQ(run_script(R"(echo '{"code":7,"msg":"bad range","details":"x"}'; echo more >&2; exit 1)"),
            kPluginFailed + "bad range; x (CNI error 7); it wrote: more");
  EXPECT_EQ(run_script("echo oops >&2; exit 3"), kPluginFailed + "exit status 3; it wrote: oops");
  EXPECT_EQ(run_script("echo half; exit 3"), kPluginFailed + "exit status 3: half");
  EXPECT_EQ(run_script("kill -SEGV $$"), kPluginFailed + "signal 11");
  EXPECT_EQ(run_script(R"(echo '{"code":7,"msg":"and yet 0"}')"), kPluginFailed + "and yet 0 (CNI error 7)");
  IpamCall del = call(script("plugin", "exit 4"));
  del.command = IpamCall::Command::kDel;
  EXPECT_TRUE(has_text(run_one(del), "cannot release an address for `net1` by IPAM plugin"));
}

TEST_F(Ipam, RefusesGarbageAndTooMuchOutput) {
  const std::string garbage = run_script(R"(printf 'not \377\001 json')");
  EXPECT_EQ(garbage.rfind(kPluginFailed + "its result, line 1, column 2: syntax error", 0), 0U) << garbage;
  EXPECT_EQ(run_script("exit 0").rfind(kPluginFailed + "its result, line 1, column 1: ", 0), 0U);
  for (const char c : garbage)
    EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
  EXPECT_EQ(run_script("head -c 10000000 /dev/zero; sleep 60"), kPluginFailed + "it writes more than 1048576 bytes");
  // Below the limit, while each byte becomes six between helper and hook.
  EXPECT_EQ(run_script(R"(head -c 1048576 /dev/zero | tr '\0' '\1')").rfind(kPluginFailed + "its result", 0), 0U);
  // The error has only the beginning of stderr.
  const std::string message = run_script("head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 1");
  EXPECT_LT(message.size(), 1000U);
  EXPECT_TRUE(has_text(message, "exit status 1; it wrote: xxx"));
}

bool lives(const std::string& pid) {
  const auto number = base::parse_number<pid_t>(base::trim(pid));
  if (!number) return false;
  std::string stat = "/proc/" + std::to_string(*number) + "/stat";
  if (access(stat.c_str(), F_OK) != 0) return false;
  const std::string text = read_file(stat);
  return text.find(") Z ") == std::string::npos && text.find(") X ") == std::string::npos;
}

// Waits for the end of the process, 10 s at most.
bool ends(const std::string& pid) {
  for (int i = 0; i < 1000; ++i) {
    if (!lives(pid)) return true;
    usleep(10000);
  }
  return false;
}

TEST_F(Ipam, KillsHangingPluginsWithTheirChildren) {
  const std::string pids = temp_ / "pids";
  const std::string hanging = script("hang", "sleep 1000 & echo $! > " + pids + "; echo $$ >> " + pids + "; wait");
  // `good` ends only if `later` runs at the same time.
  const std::string met = temp_ / "met";
  const std::string answer = R"(echo '{"ips":[{"address":"10.0.0.2/24"}]}')";
  const std::string good = script("good", "until [ -e " + met + " ]; do sleep 0.01; done; " + answer);
  const std::string later = script("later", ": > " + met + "; " + answer);
  const std::string deaf = script("deaf", "exec >&- 2>&-; trap '' TERM INT; sleep 1000");
  const std::string loud = script("loud", "while :; do echo x >&2; done");
  const auto results = run({call(hanging), call(good), call(deaf), call(later), call(loud)}, 700);
  ASSERT_EQ(results.size(), 5U);
  EXPECT_EQ(shown(results[1]), "10.0.0.2/24; ");
  EXPECT_EQ(shown(results[3]), "10.0.0.2/24; ");
  for (const std::size_t i : {0U, 2U, 4U}) {
    EXPECT_TRUE(has_text(shown(results[i]), "it does not end within 700 ms")) << i;
    EXPECT_EQ(results[i].error().code, ETIMEDOUT);
  }
  const std::string text = read_file(pids);
  const auto lines = base::split(base::trim(text), '\n');
  ASSERT_EQ(lines.size(), 2U);
  for (const auto line : lines)
    EXPECT_TRUE(ends(std::string(line))) << line;
  restarts_ = false;
  EXPECT_EQ(run_one(call(good)), "10.0.0.2/24; ");  // the same helper
}

// A child of the plugin keeps the output open.
TEST_F(Ipam, DoesNotWaitForChildrenOfAPlugin) {
  const std::string pid = temp_ / "pid";
  const std::string body = "sleep 1000 & echo $! > " + pid + R"(; echo '{"ips":[{"address":"10.0.0.2/24"}]}')";
  EXPECT_EQ(run_script(body), "10.0.0.2/24; ");
  EXPECT_TRUE(ends(read_file(pid)));
}

TEST_F(Ipam, RunsCallsAtTheSameTime) {
  // Each plugin waits for all eight.
  const std::string meet = script("meet", "touch " + temp_.path() + R"(/here.$CNI_IFNAME
for i in $(seq 500); do [ $(ls )" + temp_.path() +
                                              R"( | grep -c here) = 8 ] && break; sleep 0.02; done
echo "{\"ips\":[{\"address\":\"10.0.0.${CNI_IFNAME#net}/24\"}]}")");
  std::vector<IpamCall> calls;
  for (int i = 1; i <= 8; ++i) {
    calls.push_back(call(meet));
    calls.back().ifname = "net" + std::to_string(i);
  }
  const auto results = run(calls, 9000);
  for (std::size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(shown(results[i]), fmt::format("10.0.0.{}/24; ", i + 1));
}

TEST_F(Ipam, RefusesFilesThatAreNoProgram) {
  const auto missing = run({call("no-such-plugin")}).at(0);
  EXPECT_EQ(error_message(missing), "cannot get an address for `net1` by IPAM plugin `no-such-plugin`: it is not in `" +
                                        temp_.path() + "`, `/usr/lib/cni`");
  EXPECT_EQ(error_code(missing), ENOENT);
  EXPECT_TRUE(has_text(error_hint(missing), "containernetworking-plugins"));
  fs::create_directory(temp_ / "directory");
  EXPECT_TRUE(has_text(run_one(call("directory")), "is no regular file"));
  const std::string plain = script("plain", "echo");
  ASSERT_EQ(chmod(plain.c_str(), 0644), 0);
  EXPECT_TRUE(has_text(run_one(call(plain)), "Permission denied"));
  ASSERT_EQ(chmod(plain.c_str(), 0775), 0);
  EXPECT_TRUE(has_text(run_one(call(plain)), "users other than root can change `" + plain + "`"));
  const std::string odd = temp_ / "odd";
  write_file(odd,
             "\x7f"
             "ELF, but no program");
  ASSERT_EQ(chmod(odd.c_str(), 0755), 0);
  EXPECT_TRUE(has_text(run_one(call(odd)), "Exec format error"));
  // A multi-call program selects its function by its name, which here is that of a link.
  fs::create_symlink(fs::canonical("/bin/sh"), temp_ / "named");
  EXPECT_TRUE(has_text(run_one(call("named")), "it wrote: " + (temp_ / "named") + ": "));
}

// A link of root is trusted. A user with write access to a directory of the path can replace the program.
TEST_F(Ipam, RefusesProgramsThatOtherUsersCanChange) {
  const std::string answer = "#!/bin/sh\necho '{\"ips\":[{\"address\":\"10.0.0.2/24\"}]}'";
  const std::string inner = temp_ / "a/b";
  write_file(inner + "/target", answer);
  ASSERT_EQ(chmod((inner + "/target").c_str(), 0755), 0);
  fs::create_directory_symlink("a/../a/b", temp_ / "to-b");
  const std::string link = temp_ / "link";
  fs::create_symlink(temp_ / "to-b/target", link);
  EXPECT_EQ(run_one(call(link)), "10.0.0.2/24; ");
  ASSERT_EQ(chmod(inner.c_str(), 0777), 0);
  EXPECT_EQ(run_one(call(link)),
            "error: cannot get an address for `net1` by IPAM plugin `link`: users other than root can change `" +
                inner + "`");
  ASSERT_EQ(chmod(inner.c_str(), 01777), 0);
  EXPECT_EQ(run_one(call(link)), "10.0.0.2/24; ");
  ASSERT_EQ(chmod(inner.c_str(), 0755), 0);
  if (geteuid() == 0) {
    constexpr uid_t kOtherUser = 1000;
    ASSERT_EQ(lchown(link.c_str(), kOtherUser, kOtherUser), 0);
    EXPECT_TRUE(has_text(run_one(call(link)), "users other than root can change `" + link + "`"));
  }
  fs::create_symlink("round", temp_ / "round");
  EXPECT_TRUE(has_text(run_one(call("round")), "Too many levels of symbolic links"));
}

TEST_F(Ipam, RefusesInvalidNamesAndPaths) {
  const std::string good = script("good", R"(echo '{"ips":[{"address":"10.0.0.2/24"}]}')");
  EXPECT_EQ(run_one(call(good)), "10.0.0.2/24; ");
  const std::pair<std::function<void(IpamCall&)>, const char*> cases[] = {
      {[](IpamCall& one) { one.plugin = "../host-local"; }, "no name of a plugin"},
      {[](IpamCall& one) { one.container_id = "../x"; }, "no container id"},
      {[](IpamCall& one) { one.container_id = "-x"; }, "no container id"},
      {[](IpamCall& one) { one.network = "a b"; }, "no name of a network"},
      {[](IpamCall& one) { one.ifname = "a/b"; }, "no name of a netdev"},
      {[](IpamCall& one) { one.ifname = std::string("net1\0x", 6); }, "no name"},
      {[](IpamCall& one) { one.netns = ""; }, "path of a network namespace"},
      {[](IpamCall& one) { one.netns = "/a\nB=1"; }, "path of a network namespace"},
      {[](IpamCall& one) { one.ipam = Json::array(); }, "`ipam` object"}};
  for (const auto& [change, refusal] : cases) {
    IpamCall one = call(good);
    change(one);
    EXPECT_TRUE(has_text(run_one(one), refusal));
  }
  EXPECT_TRUE(run({}).empty());
}

// The helper and its plugins end when their parent is killed.
TEST_F(Ipam, EndsHelperAndPluginsWithTheParent) {
  const std::string pids = temp_ / "pids";
  const std::string hanging = script("hang", "echo $PPID > " + pids + ".new; echo $$ >> " + pids + ".new; mv " + pids +
                                                 ".new " + pids + "; exec sleep 1000");
  const pid_t parent = fork();
  if (parent == 0) {
    auto helper = IpamHelper::start(programs_of({call(hanging)}, temp_.path()));
    if (helper) (void)helper->run({call(hanging)}, 60000);
    _exit(0);
  }
  for (int i = 0; i < 1000 && access(pids.c_str(), F_OK) != 0; ++i)
    usleep(10000);
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  waitpid(parent, nullptr, 0);
  const std::string text = read_file(pids);
  const auto lines = base::split(base::trim(text), '\n');
  ASSERT_EQ(lines.size(), 2U);
  for (const auto line : lines)
    EXPECT_TRUE(ends(std::string(line))) << line;
}

std::string children() {
  return read_file("/proc/self/task/" + std::to_string(getpid()) + "/children");
}

TEST(IpamHelperLife, EndsWithItsObject) {
  const std::string before = children();
  {
    auto helper = IpamHelper::start({});
    ASSERT_TRUE(helper);
    IpamHelper moved = std::move(helper).value();
    EXPECT_EQ(moved.run({call("/nonexistent")}).size(), 1U);
  }
  EXPECT_EQ(children(), before);
}

// A compromised parent cannot run another program.
TEST_F(Ipam, RunsOnlyProgramsKnownAtTheFork) {
  restarts_ = false;
  const std::string trace = temp_ / "ran";
  const std::string good = script("good", "echo >> " + trace + "; exit 1");
  helper_ = IpamHelper::start({{"good", "fabric", {{"type", "test"}}, {temp_.path()}, true},
                               {"good", "old", {{"type", "test"}}, {temp_.path()}, false}})
                .value();
  const auto refused = [&](const IpamCall& one) {
    const auto results = helper_.run({one});
    return !results[0] && results[0].error().code == EPERM;
  };
  IpamCall old = call(good);
  old.network = "old";
  EXPECT_TRUE(refused(call(script("other", "echo >> " + trace))));
  EXPECT_TRUE(refused(call(good, {{"type", "test"}, {"dataDir", "/etc"}})));
  EXPECT_TRUE(refused(old));
  EXPECT_NE(access(trace.c_str(), F_OK), 0) << "one of them ran";
  EXPECT_FALSE(refused(call(good)));
  old.command = IpamCall::Command::kDel;
  EXPECT_FALSE(refused(old));
  EXPECT_EQ(read_file(trace), "\n\n");
}

// Plugins do not inherit a descriptor that the runtime left open in the hook.
TEST_F(Ipam, InheritsNoDescriptor) {
  constexpr int kLeaked = 77;
  ASSERT_EQ(dup2(STDERR_FILENO, kLeaked), kLeaked);
  helper_ = IpamHelper::start(programs_of({call("plugin")}, temp_.path())).value();
  close(kLeaked);
  restarts_ = false;
  EXPECT_EQ(run_script("[ -e /proc/$$/fd/77 ] && exit 1; exit 2"), kPluginFailed + "exit status 2");
  EXPECT_EQ(run_script("[ /proc/$PPID/fd/2 -ef /dev/null ] && exit 1; exit 2"), kPluginFailed + "exit status 1");
}

// If the helper was killed, every call fails at once.
TEST(IpamHelperLife, FailsIfTheHelperWasKilled) {
  auto helper = must(IpamHelper::start({}));
  siginfo_t info{};
  const auto pid = must(base::parse_number<pid_t>(base::split(base::trim(children()), ' ').back()));
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  for (int round = 0; round < 2; ++round) {
    const auto results = helper.run({call("/nonexistent"), call("/nonexistent")});
    ASSERT_EQ(results.size(), 2U);
    for (const auto& result : results) {
      ASSERT_FALSE(result);
      EXPECT_TRUE(has_text(result.error().message, "cannot run IPAM plugin `nonexistent`: its helper"));
    }
  }
}

}  // namespace
}  // namespace hook
