#include "init/exports.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fabric/library_variables.hpp"
#include "init/decision.hpp"
#include "init/format_env.hpp"
#include "support/inventories.hpp"
#include "support/process.hpp"

namespace {

using fabric::Inventory;
using namespace init;
using Variable = std::pair<std::string, std::string>;
using test_support::rails;
using Json = nlohmann::json;

class Exports : public testing::Test {
 protected:
  Exports() : node_(rails(2)) {
    node_.hcas[0].pci = "0000:99:00.0";  // after mlx5_1 in PCI order
    candidates_ = init::find_candidates(node_, {});
    input_.ports = {{&candidates_[0], "rail0"}, {&candidates_[1], "rail1"}};
    input_.index = 3;
    input_.default_netdev = input_.default_socket = "eth0";
  }
  Inventory node_;
  std::vector<init::Candidate> candidates_;
  init::ExportInput input_;
};

TEST_F(Exports, UseTheSyntaxOfEachLibrary) {
  const std::pair<const char*, Variables> rows[] = {
      {"nccl", {}},
      {"ucx", {{"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1,rail0,rail1,eth0"}, {"UCX_IB_GID_INDEX", "3"}}},
      {"nvshmem", {{"NVSHMEM_HCA_LIST", "mlx5_0:1,mlx5_1:1"}, {"NVSHMEM_IB_GID_INDEX", "3"}}},
      {"mscclpp", {{"MSCCLPP_HCA_DEVICES", "mlx5_1,mlx5_0"}, {"MSCCLPP_IB_GID_INDEX", "3"}}},
      {"gloo", {{"GLOO_SOCKET_IFNAME", "eth0"}}},
      {"bootstrap", {{"NCCL_SOCKET_IFNAME", "=eth0"}}},
      {"uccl", {{"UCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"}, {"UCCL_IB_GID_INDEX", "3"}, {"UCCL_P2P_RDMA_GID_INDEX", "3"}}},
      {"mooncake", {{"MC_TE_FILTERS", "mlx5_0,mlx5_1"}, {"MOONCAKE_DEVICE", "mlx5_0,mlx5_1"}, {"MC_GID_INDEX", "3"}}},
      {"openmpi", {{"OMPI_MCA_btl_openib_if_include", "mlx5_0:1,mlx5_1:1"}, {"OMPI_MCA_btl_openib_gid_index", "3"}}},
      {"libfabric", {{"FI_VERBS_GID_IDX", "3"}}},
      {"unknown", {}}};
  for (const auto& [library, variables] : rows)
    EXPECT_EQ(library_variables(library, input_), variables) << library;
  EXPECT_EQ(nccl_hca_value(input_.ports), "=mlx5_0:1,mlx5_1:1");
}

TEST_F(Exports, HaveNoIndexIfPortsDifferAndNoEmptyValue) {
  input_.default_netdev.clear();
  input_.default_socket.clear();
  input_.ports[0].netdev.clear();
  input_.ports[1].netdev.clear();
  input_.index.reset();
  for (const std::string_view library : init::export_names()) {
    for (const auto& [name, value] : library_variables(library, input_)) {
      EXPECT_EQ(name.find("GID_I"), std::string::npos) << name;
      EXPECT_FALSE(value.empty()) << name;
    }
  }
  EXPECT_EQ(library_variables("ucx", input_), (Variables{{"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1"}}));
  EXPECT_TRUE(library_variables("gloo", input_).empty());
  EXPECT_TRUE(library_variables("bootstrap", input_).empty());
}

TEST_F(Exports, NameANetdevOnceForUcxAndTheFamilyForNvshmem) {
  input_.ports[1].netdev = "rail0";
  input_.default_netdev = "rail0";
  EXPECT_EQ(library_variables("ucx", input_)[0].second, "mlx5_0:1,mlx5_1:1,rail0");
  input_.ipv6 = true;
  EXPECT_EQ(library_variables("nvshmem", input_).back(), (Variable{"NVSHMEM_IB_ADDR_FAMILY", "AF_INET6"}));
}

TEST_F(Exports, HaveAPrefixForNvshmemOnlyIfItsDefaultIsWrong) {
  const auto prefix = [&](const char* first, const char* second) {
    node_.hcas[0].name = first;
    node_.hcas[1].name = second;
    const auto variables = library_variables("nvshmem", input_);
    return variables[1].first == "NVSHMEM_HCA_PREFIX" ? variables[1].second : "";
  };
  EXPECT_EQ(prefix("mlx5_0", "mlx5_1"), "");
  EXPECT_EQ(prefix("rocep12s0", "rocep27s0"), "rocep");
  EXPECT_EQ(prefix("mlx5_0", "mlx4_1"), "mlx");
  EXPECT_EQ(prefix("mlx5_0", "bnxt_re0"), "") << "no prefix serves both";
}

TEST_F(Exports, HaveAPortForMooncakeOnlyIfItIsNotTheFirst) {
  const auto port = [&](unsigned first, unsigned second) {
    node_.hcas[0].ports[0].number = first;
    node_.hcas[1].ports[0].number = second;
    const auto variables = library_variables("mooncake", input_);
    return variables[2].first == "MC_IB_PORT" ? variables[2].second : "";
  };
  EXPECT_EQ(port(1, 1), "");
  EXPECT_EQ(port(2, 2), "2");
  EXPECT_EQ(port(1, 2), "") << "Mooncake has one port number for all HCAs";
}

TEST_F(Exports, ListDevicesForUcclOnlyIfItMightTakeOthers) {
  EXPECT_EQ(library_variables("uccl", input_)[2].first, "UCCL_P2P_RDMA_GID_INDEX");
  input_.has_others = true;
  EXPECT_EQ(library_variables("uccl", input_)[2], (Variable{"UCCL_P2P_RDMA_DEV", "mlx5_0,mlx5_1"}));
}

TEST_F(Exports, AreVariablesWhoseValuesOfTheUserAreKept) {
  input_.ipv6 = true;
  for (const std::string_view library : init::export_names()) {
    for (const auto& [name, value] : library_variables(library, input_))
      EXPECT_TRUE(fabric::is_library_variable(name)) << name;
  }
}

TEST_F(Exports, AreMarkedForALaterRun) {
  const Variables exports = {{"NCCL_IB_HCA", "=mlx5_0:1"}, {"NCCL_IB_TC", "a;b"}, {"UCX_IB_GID_INDEX", "3"}};
  const std::string mark = exports_mark(exports, {});
  EXPECT_EQ(mark, "NCCL_IB_HCA==mlx5_0:1;UCX_IB_GID_INDEX=3");
  Settings settings = {{"NCCL_IB_HCA", {"=mlx5_0:1", "environment"}},
                       {"NCCL_IB_TC", {"a;b", "environment"}},
                       {"UCX_IB_GID_INDEX", {"5", "environment"}}};
  mark_own(mark, settings, "node-a");
  EXPECT_TRUE(settings["NCCL_IB_HCA"].own);
  EXPECT_FALSE(settings["NCCL_IB_TC"].own);
  EXPECT_FALSE(settings["UCX_IB_GID_INDEX"].own) << "it was changed since";
  EXPECT_EQ(exports_mark({{"RDMA_INIT_DEVICES", "mlx5_0"}}, settings), "RDMA_INIT_DEVICES=mlx5_0;NCCL_IB_HCA==mlx5_0:1")
      << "a second run keeps what is its own";
}

TEST(MarkOwn, ListOfAnotherHostIsNone) {
  for (const auto& [mark, value, kept] : {std::tuple{"NCCL_IB_HCA==mlx5_0:1;host=node-a", "=mlx5_0:1", true},
                                          {"NCCL_IB_HCA==mlx5_0:1;host=node-b", "=mlx5_0:1", false},
                                          {"NCCL_IB_HCA==mlx5_0:1;host=node-b", "=mlx5_1:1", true}}) {
    Settings settings = {{"NCCL_IB_HCA", {value, "environment"}}};
    mark_own(mark, settings, "node-a");
    EXPECT_EQ(settings.contains("NCCL_IB_HCA"), kept) << mark << " " << value;
  }
}

TEST(ParseExports, AcceptsKnownLibrariesOnly) {
  using Libraries = std::vector<std::string>;
  EXPECT_EQ(*init::parse_exports("nccl, gloo"), (Libraries{"nccl", "gloo"}));
  EXPECT_EQ(*init::parse_exports("none"), Libraries{});
  const std::string known = "nccl, ucx, nvshmem, mscclpp, gloo, uccl, mooncake, openmpi, libfabric, bootstrap or none";
  EXPECT_EQ(init::parse_exports("nccl,rccl").error().message, "`rccl`: unknown library; --export accepts " + known);
  EXPECT_EQ(init::parse_exports("").error().message, "``: unknown library; --export accepts " + known);
  EXPECT_FALSE(init::parse_exports("nccl,none"));
}

TEST(DecisionEnv, HasOnlyTheVariablesThatNcclNeeds) {
  EXPECT_EQ(decide(rails(2), {}, {}).env, (Variables{{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"},
                                                     {"NCCL_IB_GID_INDEX", "3"},
                                                     {"UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1,rail0,rail1"},
                                                     {"UCX_IB_GID_INDEX", "3"},
                                                     {"NVSHMEM_HCA_LIST", "mlx5_0:1,mlx5_1:1"},
                                                     {"NVSHMEM_IB_GID_INDEX", "3"},
                                                     {"RDMA_INIT_DEVICES", "mlx5_0,mlx5_1"}}));
}

TEST(DecisionEnv, HasNoIndexForInfiniband) {
  Inventory node = rails(1);
  node.hcas[0].ports[0] = test_support::infiniband_port();
  init::Policy policy;
  policy.exports = {"nccl", "ucx", "nvshmem", "mscclpp", "uccl", "mooncake", "openmpi", "libfabric"};
  for (const auto& [name, value] : decide(node, {}, policy).env)
    EXPECT_EQ(name.find("GID"), std::string::npos) << name;
}

TEST(DecisionEnv, HasTheFamilyForIpv6) {
  Inventory node = rails(1);
  node.netdevs[1] = test_support::netdev("rail0", {"fd00::1"});
  node.hcas[0].ports[0].gids = {test_support::v2(4, "fd00::1")};
  const auto decision = decide(node, {}, {});
  EXPECT_EQ(decision.env[1], (Variable{"NCCL_IB_GID_INDEX", "4"}));
  EXPECT_EQ(decision.env[2], (Variable{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}));
}

TEST(DecisionEnv, IsEmptyWithoutAPortOrALibrary) {
  EXPECT_TRUE(decide(Inventory{}, {}, {}).env.empty());
  init::Policy policy;
  policy.exports = {};
  const auto none = decide(rails(1), {}, policy);
  EXPECT_TRUE(none.env.empty());
  EXPECT_EQ(none.status, init::Status::kOk) << "ports are chosen, and --export is none";
}

Decision with_value(const std::string& value) {
  Decision decision;
  decision.env = {{"NCCL_IB_HCA", value}};
  return decision;
}

const std::vector<std::string>& nasty_values() {
  static const std::vector<std::string> values = {"=mlx5_0:1,mlx5_1:1",
                                                  "",
                                                  "two words",
                                                  "it's",
                                                  "'",
                                                  "''",
                                                  "'\\''",
                                                  "$HOME $(touch /tmp/pwned) `id` ${IFS}",
                                                  "a;b&c|d>e<f",
                                                  "a\"b\\c",
                                                  "line\nbreak\n",
                                                  "carriage\rreturn\ttab",
                                                  "-n",
                                                  "*?[a]~",
                                                  "!history",
                                                  "\x1b[31m\x7f",
                                                  "\xff\xfe not UTF-8",
                                                  "\xc3\xa4",
                                                  "\\",
                                                  "\\n",
                                                  std::string(100000, '\'')};
  return values;
}

// A shell evaluates the output.
TEST(FormatSh, KeepsValuesThroughEval) {
  for (const std::string& value : nasty_values()) {
    const auto outcome = test_support::run(
        {.argv = {"/bin/sh", "-c", "eval \"$(cat)\"; printf %s. \"$NCCL_IB_HCA\"; sh -c 'printf %s. \"$NCCL_IB_HCA\"'"},
         .environment = {"PATH=/bin:/usr/bin"},
         .input = format_sh(with_value(value))});
    // $(...) removes newlines at the end of its output, not those inside quotes.
    EXPECT_EQ(outcome.out, value + "." + value + ".") << init::shell_quote(value.substr(0, 40));
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.exit_code, 0);
  }
}

TEST(FormatSh, HasOneExportPerVariable) {
  Decision decision = with_value("=a:1");
  decision.env.emplace_back("NCCL_IB_GID_INDEX", "3");
  EXPECT_EQ(format_sh(decision), "export NCCL_IB_HCA='=a:1'\nexport NCCL_IB_GID_INDEX='3'\n");
  EXPECT_EQ(format_sh(Decision{}), "");
}

TEST(FormatDotenv, QuotesOnlySpecialValuesAndRefusesLineBreaks) {
  EXPECT_EQ(*format_dotenv(with_value("=mlx5_0:1,a-b.c/d@e^f+g")), "NCCL_IB_HCA==mlx5_0:1,a-b.c/d@e^f+g\n");
  EXPECT_EQ(*format_dotenv(with_value("a b#c")), "NCCL_IB_HCA='a b#c'\n");
  EXPECT_EQ(*format_dotenv(with_value("$HOME")), "NCCL_IB_HCA='$HOME'\n");
  for (const char* value : {"a\nNCCL_DEBUG=x", "a\rb"}) {
    const std::string message = format_dotenv(with_value(value)).error().message;
    EXPECT_TRUE(message.starts_with("NCCL_IB_HCA: `a?")) << message;
  }
}

TEST(FormatJson, HasExactlyTheseKeys) {
  fabric::Inventory node = test_support::rails(1);
  node.hcas.push_back(test_support::hca("rxe0", 7, {test_support::ethernet_port({})}));
  node.hcas.back().ports[0].rate = "2.5 Gb/sec (1X SDR)";
  node.hcas.back().ports[0].link_layer = base::Unreadable{EINVAL};
  const init::Settings settings = {{"NCCL_IB_GID_INDEX", {"9", "/etc/nccl.conf"}},
                                   {"NCCL_IB_TC", {"106", "environment"}}};
  const Json json = Json::parse(format_json(decide(node, settings, {})));
  const auto keys = [](const Json& object) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items())
      names.push_back(name);
    return names;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys(json), (Keys{"env", "kept", "ports", "status", "warnings"}));
  EXPECT_EQ(json["status"], "ok_warn");
  for (const auto& [name, value] : json["env"].items())
    EXPECT_TRUE(value.is_string()) << name;
  EXPECT_FALSE(json["env"].contains("NCCL_IB_GID_INDEX")) << "a kept variable is not exported";
  EXPECT_EQ(keys(json["kept"]["NCCL_IB_GID_INDEX"]), (Keys{"problem", "source", "value"}));
  EXPECT_EQ(json["kept"]["NCCL_IB_GID_INDEX"]["value"], "9");
  EXPECT_EQ(json["kept"]["NCCL_IB_GID_INDEX"]["source"], "/etc/nccl.conf");
  EXPECT_TRUE(json["kept"]["NCCL_IB_GID_INDEX"]["problem"].is_string());
  EXPECT_TRUE(json["kept"]["NCCL_IB_TC"]["problem"].is_null());
  ASSERT_EQ(json["ports"].size(), 2U);
  for (const Json& port : json["ports"]) {
    Keys expected = {"device", "gid", "gid_index", "link_layer", "port", "rate_gbps", "reason", "used"};
    if (port["used"] == false) expected.insert(expected.begin(), "cause");
    EXPECT_EQ(keys(port), expected);
    EXPECT_FALSE(port["reason"].get<std::string>().empty());
    EXPECT_EQ(port["reason"].get<std::string>().find('\n'), std::string::npos);
  }
  EXPECT_TRUE(json["ports"][0]["gid"].is_null() && json["ports"][0]["gid_index"].is_null()) << "GID 9 is not its own";
  EXPECT_TRUE(json["ports"][0]["rate_gbps"].is_number_integer());
  EXPECT_EQ(json["ports"][1]["rate_gbps"], 2.5);
  EXPECT_TRUE(json["ports"][1]["gid"].is_null() && json["ports"][1]["gid_index"].is_null());
  EXPECT_TRUE(json["ports"][1]["link_layer"].is_string());
  EXPECT_EQ(json["warnings"].size(), 1U);
  for (const std::string& name : nasty_values()) {
    if (!name.empty()) node.hcas[0].name = name;
    const std::string text = format_json(decide(node, {}, {}));
    EXPECT_TRUE(Json::accept(text)) << text.substr(0, 200);
  }
}

TEST(StatusName, HasThreeValues) {
  EXPECT_EQ(status_name(init::Status::kOk), "ok");
  EXPECT_EQ(status_name(init::Status::kOkWarn), "ok_warn");
  EXPECT_EQ(status_name(init::Status::kNone), "none");
}

}  // namespace
