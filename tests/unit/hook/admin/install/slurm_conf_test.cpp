#include "hook/admin/install/slurm_conf.hpp"

#include <gtest/gtest.h>

#include "hook/admin/doctor/checks.hpp"

namespace hook {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(SlurmConf, ParsesCommentsContinuationsAndCase) {
  EXPECT_EQ(parse_slurm_conf("# Prolog=/no\nPROLOG = /a/prolog # mine\n"
                             "NodeName=n[1-2] \\\n  CPUs=4 \n"
                             "Epilog=\"/a b\" X=\\#1\r\n"
                             "  include  more.conf  \nInclude=x\nempty=\nword"),
            (Pairs{{"prolog", "/a/prolog"},
                   {"nodename", "n[1-2]"},
                   {"cpus", "4"},
                   {"epilog", "/a b"},
                   {"x", "\\#1"},
                   {"include", "more.conf"},
                   {"include", "x"},
                   {"empty", ""}}));
  EXPECT_EQ(parse_slurm_conf("# comment \\\nProlog=/in/the/comment\nEpilog=/x \\"), (Pairs{{"epilog", "/x"}}));
  EXPECT_EQ(parse_slurm_conf("=\"\n=x\n"), (Pairs{{"", ""}, {"", "x"}}));
}

TEST(SlurmConf, FindsOutWhetherMemlockIsPropagated) {
  EXPECT_TRUE(propagates_memlock({}));
  EXPECT_TRUE(propagates_memlock({{"propagateresourcelimits", "all"}}));
  EXPECT_TRUE(propagates_memlock({{"propagateresourcelimits", "NOFILE,MemLock"}}));
  EXPECT_FALSE(propagates_memlock({{"propagateresourcelimits", "NONE"}}));
  EXPECT_FALSE(propagates_memlock({{"propagateresourcelimits", "NOFILE"}}));
  EXPECT_FALSE(propagates_memlock({{"propagateresourcelimitsexcept", "nofile, RLIMIT_MEMLOCK"}}));
  EXPECT_FALSE(propagates_memlock({{"propagateresourcelimitsexcept", "ALL"}, {"propagateresourcelimits", "ALL"}}));
  EXPECT_TRUE(propagates_memlock({{"propagateresourcelimitsexcept", "NOFILE"}, {"propagateresourcelimits", "NONE"}}));
}

TEST(SlurmConf, CheckNamesLimitAndLine) {
  SlurmFacts facts{{"/etc/slurm/slurm.conf", {{"propagateresourcelimitsexcept", "NOFILE"}}, {}, {}},
                   {65536, UINT64_MAX}};
  const Check check = check_slurm(facts);
  ASSERT_EQ(check.findings.size(), 2U);
  EXPECT_EQ(check.findings[0].message, "slurmd has a soft RLIMIT_MEMLOCK of 65536 bytes, which jobs inherit");
  EXPECT_TRUE(check.findings[1].remedy.starts_with("set `PropagateResourceLimitsExcept=NOFILE,MEMLOCK` in it"));
  facts.memlocks = {};
  facts.conf.error = "cannot read `/etc/slurm/more.conf`: Permission denied";
  EXPECT_TRUE(check_slurm(facts).findings.empty());
  EXPECT_FALSE(check_slurm(facts).looked);
}

TEST(SlurmConf, ReadsMemlockOfProcess) {
  EXPECT_EQ(
      memlock_in("Max processes 1 2 x\nMax locked memory         65536                unlimited            bytes \n"),
      (Rlimit{65536, UINT64_MAX}));
  EXPECT_EQ(memlock_in("Max locked memory\n"), std::nullopt);
  EXPECT_EQ(memlock_in("Max locked memory  x  1  bytes\n"), std::nullopt);
}

}  // namespace
}  // namespace hook
