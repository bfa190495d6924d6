#include "init/ping/options.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "support/arguments.hpp"
#include "support/results.hpp"

namespace {

using namespace init::ping;
using namespace test_support;

// variables: NAME=VALUE, separated by spaces.
base::Result<Options> parse(std::string_view line, std::string_view variables = {}) {
  static std::vector<std::string> arguments;
  arguments = words(line);
  std::vector<char*> pointers = pointers_to(arguments);
  const int count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  std::vector<std::string> entries = words(variables);
  std::vector<char*> environment = pointers_to(entries);
  environment.push_back(nullptr);
  return parse_options(count, pointers.data(), environment.data());
}

TEST(PingOptions, ReadsEveryOption) {
  const Options options =
      must(parse("rdma-ping --rank 3 --size=4 --master node0:5000 --rails all --pairs all --bytes 1M --bw --timeout "
                 "2.5 --json --svg f"));
  EXPECT_EQ(options.rank, 3U);
  EXPECT_EQ(options.size, 4U);
  EXPECT_EQ(options.master, "node0:5000");
  EXPECT_TRUE(options.all_rails && options.all_pairs && options.bandwidth && options.json);
  EXPECT_FALSE(must(parse("rdma-ping --pairs auto")).all_pairs);
  EXPECT_EQ(options.bytes, 1U << 20);
  EXPECT_DOUBLE_EQ(options.timeout, 2.5);
  EXPECT_EQ(options.svg, "f");
  EXPECT_EQ(options.program, nullptr);
}

TEST(PingOptions, CommandLinePrecedesVariables) {
  const Options options =
      must(parse("rdma-ping --bytes 4096",
                 "RDMA_PING_BYTES=8192 RDMA_PING_TIMEOUT=600 RDMA_PING_BW=1 RDMA_PING_JSON=0 "
                 "RDMA_PING_SVG= RDMA_PING_TOKEN=x RDMA_PING_PORT=tcp://10.0.0.1:80 RDMA_PING_HELP=1"));
  EXPECT_EQ(options.bytes, 4096U);
  EXPECT_DOUBLE_EQ(options.timeout, 600);
  EXPECT_TRUE(options.bandwidth);
  EXPECT_FALSE(options.json);
  EXPECT_EQ(options.svg, "");
  EXPECT_EQ(options.command, Command::kTest);
  EXPECT_EQ(error_message(parse("rdma-ping", "RDMA_PING_RANK=x")),
            "RDMA_PING_RANK: expected a number from 0 to 65536, got `x`");
}

TEST(PingOptions, WarnsAboutUnknownVariables) {
  EXPECT_EQ(must(parse("rdma-ping", "RDMA_PING_TIMOUT=9 RDMA_PING_PORT_4792_TCP=x RDMA_PING_SERVICE_HOST=x")).warnings,
            (std::vector<std::string>{"variable `RDMA_PING_TIMOUT` is unknown (did you mean `RDMA_PING_TIMEOUT`?)"}));
  const auto ends = words(kOtherVariables);
  const std::set<std::string, std::less<>> known(ends.begin(), ends.end());
  EXPECT_EQ(variables_of_man_page(PROJECT_DIR "/init/rdma-ping.1", "RDMA_PING_"), known);
}

TEST(PingOptions, NamesWrongArguments) {
  const std::pair<const char*, const char*> rows[] = {
      {"rdma-ping --rank x", "--rank: expected a number from 0 to 65536, got `x`"},
      {"rdma-ping --size 0", "--size: expected a number from 1 to 65536, got `0`"},
      {"rdma-ping --rails some", "--rails: expected same or all, got `some`"},
      {"rdma-ping --pairs few", "--pairs: expected auto or all, got `few`"},
      {"rdma-ping --bytes 2M", "--bytes: expected 1 to 1M, got `2M`"},
      {"rdma-ping --bytes K", "--bytes: expected 1 to 1M, got `K`"},
      {"rdma-ping --timeout 0", "--timeout: expected seconds up to 86400, got `0`"},
      {"rdma-ping --rail all", "unknown option `--rail` (did you mean `--rails`?)"},
      {"rdma-ping train.py", "unexpected argument `train.py`; put the command after `--`"},
      {"rdma-ping --", "no command after `--`"},
      {"rdma-ping --bw=2", "`--bw` takes no value"},
  };
  for (const auto& [line, error] : rows)
    EXPECT_EQ(error_message(parse(line)), error) << line;
}

}  // namespace
