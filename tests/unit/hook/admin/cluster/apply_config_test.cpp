// Keys that a cluster may set in a node's configuration, and the priority of the node's own files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <regex>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/admin/cluster/apply_config.hpp"
#include "hook/admin/cluster/config_source.hpp"
#include "hook/config/read_config.hpp"
#include "hook/config/reader.hpp"
#include "support/rails.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using namespace test_support;

constexpr const char* kFile = "/etc/rdma-init/config.json";

std::vector<std::string> messages_of(const std::vector<hook::ConfigProblem>& problems) {
  std::vector<std::string> lines;
  for (const auto& problem : problems)
    lines.push_back(fmt::format("{}:{}", problem.line, problem.message.substr(0, problem.message.find(' '))));
  return lines;
}

std::vector<std::string> keys_in(const std::string& text) {
  std::vector<hook::ConfigProblem> problems;
  const ConfigText file{"cm", text, true};
  hook::ConfigReader reader(file, problems);
  if (reader.parse_document()) {
    const bool found = hook::refuse_node_keys(reader);
    EXPECT_EQ(found, !problems.empty()) << text;
    return messages_of(problems);
  }
  return {};
}

TEST(ClusterConfig, RefusesKeysOfTheNode) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(keys_in("{\"runtime\": {}}"), Lines{"1:`runtime`:"});
  EXPECT_EQ(keys_in("{\"rails\": [],\n\"runtime\": null}"), Lines{"2:`runtime`:"});
  EXPECT_EQ(keys_in("{\"networks\": {\"a/b\":\n {\"ipam\": {\"type\": \"x\"},\n\"ipam_dir\": \"/opt\"}}}"),
            (Lines{"2:`networks.a/b.ipam`:", "3:`networks.a/b.ipam_dir`:"}));
  EXPECT_EQ(keys_in("{\"networks\": {\"a\":\n {\"take_node_netdevs\": true}}}"),
            Lines{"2:`networks.a.take_node_netdevs`:"});
  EXPECT_EQ(keys_in(R"({"lend_from": "/opt/lib"})"), Lines{"1:`lend_from`:"});
  EXPECT_EQ(keys_in(R"({"topology_file": "/etc/shadow"})"), Lines{"1:`topology_file`:"});
  EXPECT_EQ(keys_in(R"({"pools": [{"env": {"NCCL_IB_TC": "1", "UCX_IB_SL": "2"}}]})"), Lines());
  EXPECT_EQ(keys_in(R"({"pools": [{}, {"env": {"NCCL_IB_TC": "1",)"
                    "\n\"NCCL_NET_PLUGIN\": \"/x\"}}]}"),
            Lines{"2:`pools[1].env.NCCL_NET_PLUGIN`:"});
  EXPECT_EQ(keys_in(R"({"networks": {"a": {"env": {"UCX_MODULE_DIR": "/x"}}}})"),
            Lines{"1:`networks.a.env.UCX_MODULE_DIR`:"});
  for (const char* fine :
       {"{}", "[]", "no JSON", "{\"networks\": []}", "{\"networks\": {\"a\": 1}}", "{\"networks\": {\"ipam\": {}}}",
        "{\"rails\": [\"runtime\"]}", "{\"node_index\": \"address\"}", "{\"node_index\": \"NODE_NAME\"}",
        "{\"node_index\": \"/etc/rdma-init/node_index\"}", "{\"node_index\": {\"gpu-a\": 0}}"}) {
    EXPECT_EQ(keys_in(fine), Lines()) << fine;
  }
  for (const char* own : {"{\"node_index\": 0}", "{\"node_index\": 7}", "{\"node_index\": \"/dev/watchdog\"}",
                          "{\"node_index\": \"/etc/rdma-init/\"}", "{\"node_index\": \"/etc/rdma-init/..\"}",
                          "{\"node_index\": \"/etc/rdma-init/../../dev/watchdog\"}",
                          "{\"node_index\": \"/etc/rdma-init/conf.d/x\"}", "{\"node_index\": []}"}) {
    EXPECT_EQ(keys_in(own), Lines{"1:`node_index`:"}) << own;
  }
}

// The texts of the schema that can begin with a slash or have any content.
void find_paths(const Json& schema, const std::string& at, std::set<std::string>& found) {
  if (!schema.is_object()) return;
  const bool is_text = schema.value("type", Json()) == "string" && !schema.contains("enum");
  const std::string pattern = schema.value("pattern", "");
  if (is_text && (pattern.empty() || std::regex_search("/dev/sda", std::regex(pattern)))) found.insert(at);
  // An object with any members belongs to another program.
  if (schema.value("type", Json()) == "object" && schema.contains("properties") &&
      !schema.contains("additionalProperties"))
    found.insert(at);
  for (const char* list : {"anyOf", "allOf", "oneOf"}) {
    for (const Json& part : schema.value(list, Json::array()))
      find_paths(part, at, found);
  }
  for (const char* one : {"items", "additionalProperties"})
    if (schema.contains(one)) find_paths(schema[one], at + "[]", found);
  for (const char* group : {"properties", "$defs"}) {
    if (!schema.contains(group)) continue;
    for (const auto& [name, member] : schema[group].items())
      if (name != "$schema" && name != "$comment") find_paths(member, at + "/" + name, found);
  }
}

// Fails for a new key of config.json that can hold a path, until the key is added to one of the lists.
TEST(ClusterConfig, ListsEveryKeyThatCanHoldAPath) {
  const Json schema = Json::parse(read_file(CONFIG_DIR "/config.schema.json"));
  std::set<std::string> found;
  find_paths(schema, "", found);
  // Used as names, globs or selectors, never opened.
  for (const char* harmless : {"/comment", "/comment[]", "/selectors/ifNames[]", "/default_devices"})
    EXPECT_EQ(found.erase(harmless), 1U) << harmless;
  const std::set<std::string> refused = {"/network/ipam", "/network/ipam_dir", "/runtime/hook", "/runtime/runtimes[]",
                                         "/lend_from",    "/topology_file",    "/node_index",   "/env[]"};
  EXPECT_EQ(found, refused);
}

hook::ParsedConfig parsed(const std::string& cluster, const std::string& own) {
  return hook::parse_config({{"cm", cluster, true}, {kFile, own}});
}

TEST(ClusterConfig, AllowsNodeKeysInNodesOwnFile) {
  const std::string keys = R"({"runtime": {"hook": "/h"}, "networks": {"n": {"ipam": {"type": "t"}}}})";
  const auto refused = parsed(keys, "{}");
  EXPECT_EQ(messages_of(refused.problems), (std::vector<std::string>{"1:`runtime`:", "1:`networks.n.ipam`:"}));
  EXPECT_EQ(refused.config, hook::Config()) << "a caller that ignores errors must not get the name of a program";
  EXPECT_EQ(messages_of(parsed("{}", keys).problems), std::vector<std::string>());
}

TEST(ClusterConfig, AllowsIpamPluginsOfTheNode) {
  const auto of_network = [](const std::string& ipam) { return R"({"networks": {"n": {"ipam": )" + ipam + "}}}"; };
  const std::string own = R"({"ipam_allowed": ["whereabouts", "nv-ipam", "host-local"]})";
  const auto lines = [&](const std::string& ipam) { return messages_of(parsed(of_network(ipam), own).problems); };
  const std::vector<std::string> none;
  const std::vector<std::string> refused = {"1:`networks.n.ipam`:"};
  EXPECT_EQ(lines(R"({"type": "whereabouts", "range": "10.1.0.0/16", "exclude": ["10.1.0.0/24"]})"), none);
  EXPECT_EQ(lines(R"({"type": "nv-ipam", "poolName": "rails", "poolType": "cidrpool"})"), none);
  EXPECT_EQ(lines(R"({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}]]})"), none);
  EXPECT_EQ(lines(R"({"type": "dhcp"})"), refused);
  EXPECT_EQ(lines(R"({"type": 7})"), (std::vector<std::string>{"1:`networks.n.ipam`:", "1:`networks.n.ipam.type`:"}));
  for (const char* hostile :
       {R"({"type": "host-local", "dataDir": "/etc/cron.d"})", R"({"type": "host-local", "resolvConf": "/etc/shadow"})",
        R"({"type": "whereabouts", "range": "10.0.0.0/8", "log_file": "/etc/passwd"})",
        R"({"type": "whereabouts", "kubernetes": {"kubeconfig": "/x"}})", R"({"type": "nv-ipam", "confDir": "/x"})",
        R"({"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/8", "dataDir": "x"}]]})"})
    EXPECT_EQ(lines(hostile), refused) << hostile;
  // The cluster cannot allow its own plugins.
  const auto itself = parsed(R"({"ipam_allowed": ["x"], "networks": {"n": {"ipam": {"type": "x"}}}})", "{}");
  EXPECT_EQ(messages_of(itself.problems), (std::vector<std::string>{"1:`ipam_allowed`:", "1:`networks.n.ipam`:"}));
  EXPECT_EQ(itself.config, hook::Config());
}

TEST(ClusterConfig, PrefersNodesOwnFiles) {
  const auto whole = parsed(R"({"rails": ["new"], "node_index": "address", "memlock": null,
      "networks": {"a": {"mtu": 9000}, "b": {"mtu": 4096}}})",
                            R"({"rails": ["own"], "node_index": 7, "runtime": {"hook": "/h"},
      "networks": {"a": {"ipam": {"type": "t"}}}})");
  ASSERT_TRUE(whole.ok());
  const auto& config = whole.config;
  EXPECT_EQ(config.rails, test_support::rails_of(R"(["own"])"));
  EXPECT_EQ(config.node_index, (hook::NodeIndex{hook::NodeIndex::By::kNumber, 7}));
  EXPECT_EQ(config.runtime.hook, "/h");
  EXPECT_EQ(config.memlock, std::nullopt) << "a key that only the cluster has set";
  EXPECT_EQ(config.networks.at("a").ipam_plugin, "t");
  EXPECT_EQ(config.networks.at("a").mtu, std::nullopt) << "a network is replaced as a whole";
  EXPECT_EQ(config.networks.at("b").mtu, 4096U);
}

TEST(ClusterConfig, AllowsNodeNetdevsOnlyInNodesOwnFile) {
  const std::string network = R"({"networks": {"n": {"mode": "exclusive"}}})";
  const std::string taking = R"({"networks": {"n": {"mode": "exclusive", "take_node_netdevs": true}}})";
  EXPECT_EQ(messages_of(parsed(taking, "{}").problems), std::vector<std::string>{"1:`networks.n.take_node_netdevs`:"});
  EXPECT_FALSE(parsed(network, "{}").config.networks.at("n").take_node_netdevs);
  EXPECT_TRUE(parsed(network, taking).config.networks.at("n").take_node_netdevs);
}

TEST(ClusterConfig, ReportsLinesOfClustersText) {
  const std::string text = "{\n\"pools\": [{\"name\": \"p\",\n\"network\": \"n\"}]}";
  EXPECT_EQ(messages_of(parsed(text, "{}").problems), std::vector<std::string>{"3:`pools[0].network`:"});
  EXPECT_TRUE(parsed(text, R"({"networks": {"n": {"mode": "shared"}}})").ok())
      << "the network is in the node's own file";
}

TEST(ClusterConfig, ReportsNetworkWithoutSliceForNode) {
  const auto problems_of = [](const std::string& index) {
    const auto parsed = hook::parse_config(
        {{"cm", R"({"networks": {"n": {"addresses": [{"rail": 3, "subnet": "10.1.0.0/16", "per_node": 24}]}},
                    "node_index": )" +
                    index + "}"}});
    EXPECT_TRUE(parsed.ok()) << index;
    const TempDir root;
    std::string text;
    hook::NodeSettings node;
    node.root = root.path();
    for (const auto& problem : hook::slice_problems(parsed.config, node, "cm"))
      text += problem.message + "\n";
    return text;
  };
  EXPECT_EQ(problems_of("255"), "");
  EXPECT_NE(problems_of("256").find("`networks.n`: network `n`: this node's index 256 does not fit"),
            std::string::npos);
  EXPECT_NE(problems_of("\"/etc/rdma-init/no-such-index\"").find("No such file"), std::string::npos);
  EXPECT_EQ(problems_of(R"({"gpu-#": 0})").find("NODE_NAME: the variable is not set") != std::string::npos, true);
  // Invisible HCAs are not a problem.
  EXPECT_EQ(problems_of("\"address\""), "");
}

TEST(ClusterConfig, ReportsRangeOfMacAddressesWithoutSliceForNode) {
  const auto parsed =
      hook::parse_config({{"cm", R"({"node_index": 2, "networks": {"n": {"mode": "exclusive", "vf": {"macs": {
                  "from": "02:00:00:00:00:00", "to": "02:00:00:00:00:03", "per_node": 2}}}}})"}});
  ASSERT_TRUE(parsed.ok()) << to_string(parsed.problems.front());
  const TempDir root;
  hook::NodeSettings node;
  node.root = root.path();
  const auto problems = hook::slice_problems(parsed.config, node, "cm");
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems.front().message.find("has 2 slices of 2"), std::string::npos);
}

class ClusterSource : public testing::Test {
 protected:
  std::string error() {
    const auto text = hook::read_cluster_config(dir_.path());
    return text ? "" : text.error().message;
  }
  void link(const std::string& target, const std::string& name) {
    ::unlink((dir_ / name).c_str());
    ASSERT_EQ(::symlink(target.c_str(), (dir_ / name).c_str()), 0);
  }
  TempDir dir_;
};

TEST_F(ClusterSource, ReadsConfigMapAsKubeletMountsIt) {
  write_file(dir_ / "..2026_11_23/config.json", "{\"a\": 1}");
  link("..2026_11_23", "..data");
  link("..data/config.json", "config.json");
  EXPECT_EQ(test_support::must(hook::read_cluster_config(dir_.path())), "{\"a\": 1}");
}

TEST_F(ClusterSource, RefusesLinksThatLeadOut) {
  const TempDir other;
  write_file(other / "config.json", "secret");
  const std::string out = "leads out of its directory";
  link(other / "config.json", "config.json");
  EXPECT_NE(error().find(out), std::string::npos);
  link("../" + other.path().substr(other.path().rfind('/') + 1) + "/config.json", "config.json");
  EXPECT_NE(error().find(out), std::string::npos);
  link("config.json", "config.json");
  EXPECT_NE(error().find("or in a circle"), std::string::npos);
  link(other.path(), "..data");
  link("..data/config.json", "config.json");
  EXPECT_NE(error().find(out), std::string::npos);
  link(".", "config.json");
  EXPECT_NE(error(), "");
}

TEST_F(ClusterSource, RefusesOtherFileTypesAndLargeFiles) {
  EXPECT_NE(error().find("No such file"), std::string::npos);
  ASSERT_EQ(::mkfifo((dir_ / "config.json").c_str(), 0666), 0);
  EXPECT_NE(error().find("not a regular file"), std::string::npos);
  ::unlink((dir_ / "config.json").c_str());
  ASSERT_EQ(::mkdir((dir_ / "config.json").c_str(), 0777), 0);
  EXPECT_NE(error().find("not a regular file"), std::string::npos);
  ::rmdir((dir_ / "config.json").c_str());
  write_file(dir_ / "config.json", std::string(hook::kLongestClusterConfig, ' '));
  EXPECT_EQ(error(), "");
  write_file(dir_ / "config.json", std::string(hook::kLongestClusterConfig + 1, ' '));
  EXPECT_NE(error(), "");
}

}  // namespace
