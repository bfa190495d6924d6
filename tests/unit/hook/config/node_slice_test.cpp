// A node's slice of a subnet, and the sources of its number.
#include "hook/config/node_slice.hpp"

#include <gtest/gtest.h>

#include <random>

#include "hook/config/config.hpp"
#include "hook/config/node_index.hpp"
#include "hook/config/read_config.hpp"
#include "hook/rails/address/node_ranges.hpp"
#include "hook/rails/address/pool.hpp"
#include "support/inventories.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace hook;
using namespace fabric;
using test_support::address;

constexpr const char* kNetwork = R"({"node_index": %, "networks": {"n": {"addresses": [
  {"rail": 0, "subnet": "10.100.0.0/16", "per_node": 24, "gateway": "10.100.0.1"}]}}})";

Config config_with(const std::string& index) {
  std::string text = kNetwork;
  text.replace(text.find('%'), 1, index);
  const auto parsed = parse_config({{"c", text}});
  EXPECT_TRUE(parsed.ok()) << to_string(parsed.problems.front());
  return parsed.config;
}

// Returns "10.100.7.0-10.100.7.255", or the error.
std::string slice_here(const Config& config, const std::vector<Address>& own = {}) {
  const auto ranges = node_ranges(config, config.networks.at("n"), 0, [&] { return own; });
  if (!ranges) return ranges.error().message;
  return to_string(ranges->at(0).from) + "-" + to_string(ranges->at(0).to);
}

TEST(NodeSlice, ReadsNumberFromEachSource) {
  EXPECT_EQ(slice_here(config_with("7")), "10.100.7.0-10.100.7.255");
  EXPECT_EQ(slice_here(config_with("0")), "10.100.0.2-10.100.0.255");  // behind network and gateway
  EXPECT_EQ(slice_here(config_with("255")), "10.100.255.0-10.100.255.254");
  EXPECT_EQ(slice_here(config_with("256")),
            "network `n`: this node's index 256 does not fit subnet 10.100.0.0/16: it has 256 slices of /24");
  EXPECT_EQ(slice_here(config_with("\"address\""), {address("192.0.2.1"), address("10.100.9.1")}),
            "10.100.9.0-10.100.9.255");
  EXPECT_EQ(slice_here(config_with("\"address\""), {address("192.0.2.1")}),
            "cannot find this node's slice of 10.100.0.0/16: the node has no address of this subnet on rail 0");
  ::setenv("NODE_NAME", "gpu-node-017", 1);
  EXPECT_EQ(slice_here(config_with("\"NODE_NAME\"")), "10.100.17.0-10.100.17.255");
  ::setenv("NODE_NAME", "gpu-node", 1);
  EXPECT_NE(slice_here(config_with("\"NODE_NAME\"")).find("does not end with a number"), std::string::npos);
  ::unsetenv("NODE_NAME");
  EXPECT_NE(slice_here(config_with("\"NODE_NAME\"")).find("the variable is not set"), std::string::npos);
}

TEST(NodeSlice, ReadsNumberFromFile) {
  const test_support::TempDir temp;
  const std::string file = temp / "index";
  const Config config = config_with("\"" + file + "\"");
  EXPECT_NE(slice_here(config).find("No such file"), std::string::npos);
  test_support::write_file(file, "12\n");
  ::chmod(file.c_str(), 0644);
  if (::geteuid() == 0) {
    EXPECT_EQ(slice_here(config), "10.100.12.0-10.100.12.255");
  }
  ::chmod(file.c_str(), 0666);
  EXPECT_NE(slice_here(config).find("users other than root can write it"), std::string::npos);
  ::chmod(file.c_str(), 0644);
  test_support::write_file(file, "twelve\n");
  if (::geteuid() == 0) {
    EXPECT_NE(slice_here(config).find("it has no number"), std::string::npos);
  }
}

TEST(NodeSlice, ExcludesAddressesOfTheNode) {
  const test_support::TempDir temp;
  const Config config = config_with("\"address\"");
  const auto ranges = node_ranges(config, config.networks.at("n"), 0, [] {
    return std::vector<Address>{address("10.100.9.0"), address("10.100.9.2")};
  });
  ASSERT_TRUE(ranges);
  ::chmod(std::string(temp.path()).c_str(), 0700);
  const auto pool = AddressPool::open(temp / ".");
  if (!pool) GTEST_SKIP() << pool.error().message;
  std::string allocated;
  for (const char* key : {"a", "b"}) {
    const auto taken = test_support::must(pool->take("n", 0, 0, *ranges, key));
    allocated += to_string(taken.at(0).address) + "/" + std::to_string(taken.at(0).prefix) + " ";
  }
  EXPECT_EQ(allocated, "10.100.9.1/16 10.100.9.3/16 ");
}

// Slices are in the subnet, do not overlap and lack its edge addresses. An address identifies its slice.
TEST(NodeSlice, SlicesDoNotOverlap) {
  std::mt19937_64 random(1);
  const auto below = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most - 1)(random);
  };
  for (int round = 0; round < 20'000; ++round) {
    const bool ipv4 = below(2) == 0;
    AddressRange range;
    range.prefix = static_cast<unsigned>(8 + below(ipv4 ? 18 : 100));
    range.per_node = static_cast<unsigned>(range.prefix + 1 + below((ipv4 ? 30U : 126U) - range.prefix));
    Address base = address(ipv4 ? "10.0.0.0" : "fd00::");
    for (std::size_t byte = ipv4 ? 13 : 1; byte < 16; ++byte)
      base.bytes[byte] = static_cast<std::uint8_t>(below(256));
    range.subnet = fabric::masked(base, range.prefix);
    range.from = range.subnet;
    ++range.from.bytes[15];
    range.to = range.subnet;
    for (unsigned bit = range.prefix + (ipv4 ? 96 : 0); bit < 128; ++bit)
      range.to.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80U >> (bit % 8));
    if (ipv4) --range.to.bytes[15];
    const std::uint64_t count = slice_count(range);
    const std::uint64_t left = below(count);
    const std::uint64_t right = below(count);
    const auto one = slice_of(range, left);
    const auto other = slice_of(range, right);
    ASSERT_TRUE(one && other);
    EXPECT_LE(one->from, one->to);
    EXPECT_TRUE(range.from <= one->from && one->to <= range.to);
    EXPECT_EQ(slice_with(range, one->from), left);
    EXPECT_EQ(slice_with(range, one->to), left);
    EXPECT_EQ(left != right, one->to < other->from || other->to < one->from);
    if (count != UINT64_MAX) {
      EXPECT_FALSE(slice_of(range, count));
    }
  }
}

using Texts = std::vector<std::string>;

TEST(NodeSlice, ChecksListOfNodes) {
  const Config config = config_with("\"address\"");
  EXPECT_EQ(check_nodes("# nodes\ngpu-1 1\r\ngpu-2 2\n\nother\t255 # the last\n", config).problems, Texts());
  EXPECT_EQ(check_nodes("gpu-1 1\ngpu-2 1\ngpu\na b c\nx 300\n", config).problems,
            (Texts{"line 2: `gpu-1` and `gpu-2` both have index 1: they would allocate the same addresses",
                   "line 3: `gpu` has no index: \"node_index\" does not depend on the name, so the line needs a number",
                   "line 4: `a` has no index: expected a name, or a name and a number from 0",
                   "line 5: `x`: network `n`: 10.100.0.0/16 has 256 slices of /24, none with index 300"}));
  EXPECT_EQ(check_nodes("", config).problems, Texts{"the list has no node"});
  EXPECT_EQ(check_nodes("\n# gpu-1 1\n", config).problems, Texts{"the list has no node"});
}

TEST(NodeSlice, ReportsClashesOfNamesInList) {
  const Config by_name = config_with("\"NODE_NAME\"");
  EXPECT_EQ(check_nodes("gpu-1\ngpu-2 2\n", by_name).problems, Texts());
  EXPECT_EQ(check_nodes("gpu-1\nb-001\n", by_name).problems,
            Texts{"line 2: `gpu-1` and `b-001` both have index 1: they would allocate the same addresses"});
  EXPECT_EQ(check_nodes("gpu-2 1\n", by_name).problems,
            Texts{"line 1: `gpu-2` has index 1 in the list, but 2 by \"node_index\""});
  const auto refused = check_nodes("ip-10-0-3-17\nip-10-0-4-17\n", by_name).problems;
  ASSERT_EQ(refused.size(), 2U);
  EXPECT_NE(refused[0].find("several numbers after its last letter"), std::string::npos);
  const auto doubtful = check_nodes("gpu-h100-017\ngpu-h100-018\n", by_name);
  EXPECT_EQ(doubtful.problems, Texts());
  EXPECT_EQ(doubtful.warnings, Texts{"`gpu-h100-017` and 1 more names: the last number is the index, and the numbers "
                                     "before it do not count"});
  const Config by_names = config_with(R"({"ip-10-0-3-#": 0, "ip-10-0-4-#": 100, "gpu": 117})");
  EXPECT_EQ(check_nodes("ip-10-0-3-17\nip-10-0-4-16\ngpu\n", by_names).problems, Texts());
  EXPECT_EQ(check_nodes("ip-10-0-4-17\ngpu\nother-1\n", by_names).problems,
            (Texts{"line 2: `ip-10-0-4-17` and `gpu` both have index 117: they would allocate the same addresses",
                   "line 3: \"node_index\" has no entry for `other-1`"}));
  EXPECT_EQ(check_nodes("a\nb\n", config_with("7")).problems.size(), 1U) << "one number for all nodes";
}

TEST(NodeIndex, RefusesNameWithSeveralNumbersAfterLastLetter) {
  const NodeIndex by{NodeIndex::By::kName};
  for (const auto& [name, index] : {std::pair("gpu-node-017", 17), std::pair("n7", 7), std::pair("7", 7),
                                    std::pair("gpu-h100-017", 17), std::pair("r3-n17", 17), std::pair("a.b.c4", 4)})
    EXPECT_EQ(test_support::must(index_of_name(by, name)), static_cast<std::uint64_t>(index)) << name;
  for (const char* name : {"ip-10-0-3-17", "10.0.3.17", "rack-3-17", "h100-3_17", "a-1--2"}) {
    const auto index = index_of_name(by, name);
    ASSERT_FALSE(index) << name;
    EXPECT_NE(index.error().message.find("several numbers after its last letter"), std::string::npos) << name;
  }
  EXPECT_NE(index_of_name(by, "ip-10-0-3-17").error().hint.find(R"({"ip-10-0-3-#": 0})"), std::string::npos);
  for (const char* name : {"ip-10-0-3-17.ec2.internal", "aks-gpu-12345678-vmss00000a", "gpu", "", "\x1b[31m"}) {
    const auto index = index_of_name(by, name);
    ASSERT_FALSE(index) << name;
    // A ConfigMap may follow the remedy: it names no number or file for this node.
    EXPECT_NE(index.error().hint.find("as an object"), std::string::npos) << index.error().hint;
  }
  EXPECT_TRUE(has_several_numbers("gpu-h100-017"));
  EXPECT_FALSE(has_several_numbers("gpu-017"));
  EXPECT_FALSE(has_several_numbers("gpu"));
}

TEST(NodeIndex, TakesEntryOfNameOrPattern) {
  const NodeIndex by{NodeIndex::By::kNames,
                     0,
                     {},
                     {{"ip-10-0-3-#", 0},
                      {"ip-10-0-4-#", 256},
                      {"ip-10-0-4-9", 3},
                      {"aks-gpu-12345678-vmss%", 1000},
                      {"rack#-gpu", 50},
                      {"ambiguous-#", 0},
                      {"ambiguous-1#", 0}}};
  const auto index = [&](const char* name) { return test_support::must(index_of_name(by, name)); };
  EXPECT_EQ(index("ip-10-0-3-17"), 17U);
  EXPECT_EQ(index("ip-10-0-4-17"), 273U);
  EXPECT_EQ(index("ip-10-0-4-9"), 3U) << "the whole name precedes a pattern";
  EXPECT_EQ(index("aks-gpu-12345678-vmss00000a"), 1010U);
  EXPECT_EQ(index("rack7-gpu"), 57U);
  EXPECT_EQ(index("ambiguous-2"), 2U);
  for (const char* none :
       {"ip-10-0-5-17", "ip-10-0-3-", "ip-10-0-3-x", "ip-10-0-3-1-7", "rack-gpu", "", "ip-10-0-3-#", "ip-10-0-3--1",
        "ip-10-0-3-+1", "ip-10-0-3-99999999999999999999", "ip-10-0-4-18446744073709551615"}) {
    const auto refused = index_of_name(by, none);
    ASSERT_FALSE(refused) << none;
    EXPECT_NE(refused.error().message.find("has no entry"), std::string::npos) << none;
  }
  EXPECT_NE(index_of_name(by, "ambiguous-12").error().message.find("matches `ambiguous-#` and `ambiguous-1#`"),
            std::string::npos);
}

TEST(NodeIndex, ReadsObjectOfNames) {
  const auto problem = [](const std::string& names) {
    const auto parsed = parse_config({{"c", R"({"node_index": )" + names + "}"}});
    return parsed.ok() ? std::string() : to_string(parsed.problems.front());
  };
  EXPECT_EQ(problem(R"({"a": 0, "b": 1, "c-#": 0, "d-%-x": 4294967295, "$comment": "x"})"), "");
  EXPECT_NE(problem("{}").find("has no node"), std::string::npos);
  EXPECT_NE(problem(R"({"$comment": "x"})").find("has no node"), std::string::npos);
  EXPECT_NE(problem(R"({"a": 1, "b": 1})").find("`a` has this number too"), std::string::npos);
  for (const char* wrong : {R"({"a##": 1})", R"({"a#%": 1})", R"({"": 1})", R"({"a b": 1})", R"({"a*": 1})"})
    EXPECT_NE(problem(wrong).find("neither a node's name nor a pattern"), std::string::npos) << wrong;
  for (const char* wrong : {R"({"a": -1})", R"({"a": 4294967296})", R"({"a": "1"})", R"({"a": 1.5})", R"({"a": null})"})
    EXPECT_NE(problem(wrong), "") << wrong;
  ::setenv("NODE_NAME", "ip-10-0-4-17", 1);
  EXPECT_EQ(slice_here(config_with(R"({"ip-10-0-4-#": 64})")), "10.100.81.0-10.100.81.255");
  EXPECT_NE(slice_here(config_with(R"("NODE_NAME")")).find("several numbers after its last letter"), std::string::npos);
  ::unsetenv("NODE_NAME");
  EXPECT_NE(slice_here(config_with(R"({"a": 1})")).find("the variable is not set"), std::string::npos);
}

TEST(NodeSlice, RefusesWrongMembers) {
  const auto problem = [](const std::string& index, const std::string& range) {
    const auto parsed = parse_config(
        {{"c", "{" + index + R"("networks": {"n": {"addresses": [{"subnet": "10.1.0.0/16", )" + range + "}]}}}"}});
    return parsed.ok() ? std::string() : parsed.problems.front().message;
  };
  EXPECT_NE(problem("", R"("per_node": 24)").find("\"node_index\" is missing"), std::string::npos);
  const std::string index = R"("node_index": 1, )";
  EXPECT_EQ(problem(index, R"("per_node": 24)"), "");
  EXPECT_NE(problem(index, R"("per_node": 16)").find("is too large for 10.1.0.0/16"), std::string::npos);
  EXPECT_NE(problem(index, R"("per_node": 31)").find("is too large for 10.1.0.0/16"), std::string::npos);
  EXPECT_NE(problem(index, R"("per_node": 24, "from": "10.1.0.9")").find("`from` cannot be combined with `per_node`"),
            std::string::npos);
  for (const char* wrong : {R"("seven")", "null", "true", "[]"})
    EXPECT_NE(problem(fmt::format(R"("node_index": {}, )", wrong), R"("per_node": 24)")
                  .find("is not a source of the node's number"),
              std::string::npos)
        << wrong;
  EXPECT_NE(problem(R"("node_index": -1, )", R"("per_node": 24)"), "");
}

}  // namespace
