#include "init/ping/ranks.hpp"

#include <gtest/gtest.h>

#include "support/arguments.hpp"
#include "support/results.hpp"

namespace {

using namespace init::ping;
using namespace test_support;

// variables: NAME=VALUE, separated by spaces.
base::Result<Place> place_of(std::string_view variables, std::optional<unsigned> rank = {},
                             std::optional<unsigned> size = {}, const std::optional<std::string>& master = {}) {
  std::vector<std::string> entries = words(variables);
  std::vector<char*> environment = pointers_to(entries);
  environment.push_back(nullptr);
  return find_place(rank, size, master, environment.data());
}

TEST(FindPlace, ReadsVariablesOfEveryLauncher) {
  const struct {
    const char* variables;
    unsigned rank, size;
    const char* host;
    std::uint16_t port;
    const char *token, *source;
  } rows[] = {
      {"RANK=3 WORLD_SIZE=8 MASTER_ADDR=node0 MASTER_PORT=29500", 3, 8, "node0", 29500, "8", "RANK and WORLD_SIZE"},
      {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::1", 0, 2, "fd00::1", kMeetingPort, "2", "RANK and WORLD_SIZE"},
      {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_NODELIST=gpu[07-09] SLURM_JOB_ID=77 SLURM_STEP_ID=0", 1, 4, "gpu07",
       kMeetingPort, "4 77 0", "SLURM_PROCID and SLURM_NTASKS"},
      {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 PMIX_RANK=2 PMIX_NAMESPACE=j1 MASTER_ADDR=a", 2, 3, "a",
       kMeetingPort, "3 j1", "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
      {"JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 MASTER_ADDR=job-0.job RDMA_PING_TOKEN=x", 1, 2, "job-0.job", kMeetingPort,
       "x", "JOB_COMPLETION_INDEX and WORLD_SIZE"},
      {"RANK= SLURM_PROCID=1 SLURM_NTASKS=2 MASTER_ADDR=a MASTER_PORT=", 1, 2, "a", kMeetingPort, "2",
       "SLURM_PROCID and SLURM_NTASKS"},
      {"TORCHELASTIC_RUN_ID=t RANK=3 WORLD_SIZE=16 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=1 "
       "MASTER_ADDR=a",
       3, 16, "a", kMeetingPort, "16 7 t", "RANK and WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 MASTER_ADDR=a", 3, 4,
       "a", kMeetingPort, "4 7", "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
      {"PET_NNODES=2 PET_NODE_RANK=1 RANK=1 WORLD_SIZE=16 MASTER_ADDR=a", 1, 2, "a", kMeetingPort, "2",
       "PET_NODE_RANK and PET_NNODES"},
      {"PET_NNODES=1:2 PET_NODE_RANK=1 RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", 1, 2, "a", kMeetingPort, "2",
       "RANK and WORLD_SIZE"},
      {"RANK=0 WORLD_SIZE=1", 0, 1, "", kMeetingPort, "1", "RANK and WORLD_SIZE"},
      {"RANK=1 SLURM_PROCID=1 SLURM_NTASKS=2 WORLD_SIZE=2 MASTER_ADDR=a:5", 1, 2, "a", 5, "2", "RANK and WORLD_SIZE"},
  };
  for (const auto& row : rows) {
    const auto place = place_of(row.variables);
    ASSERT_TRUE(is_ok(place)) << row.variables;
    EXPECT_EQ(place->rank, row.rank) << row.variables;
    EXPECT_EQ(place->size, row.size) << row.variables;
    EXPECT_EQ(place->host, row.host) << row.variables;
    EXPECT_EQ(place->port, row.port) << row.variables;
    EXPECT_EQ(place->token, row.token) << row.variables;
    EXPECT_EQ(place->source, row.source) << row.variables;
  }
}

TEST(FindPlace, CommandLineOverridesVariables) {
  const Place place = must(place_of("RANK=1 SLURM_PROCID=2 WORLD_SIZE=x MASTER_ADDR=a", 3, 4, "[fd00::1]:99"));
  EXPECT_EQ(place.rank, 3U);
  EXPECT_EQ(place.size, 4U);
  EXPECT_EQ(place.host, "fd00::1");
  EXPECT_EQ(place.port, 99);
}

TEST(FindPlace, NamesBothOfTwoContradictingVariables) {
  const std::pair<const char*, const char*> rows[] = {
      {"RANK=1 SLURM_PROCID=0 WORLD_SIZE=2 MASTER_ADDR=a", "RANK=1 and SLURM_PROCID=0 contradict each other"},
      {"RANK=1 WORLD_SIZE=2 SLURM_NTASKS=1 MASTER_ADDR=a", "WORLD_SIZE=2 and SLURM_NTASKS=1 contradict each other"},
      {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a:1 MASTER_PORT=2", "MASTER_ADDR=a:1 and MASTER_PORT=2 contradict each other"},
      {"RANK=2 SLURM_NTASKS=2 MASTER_ADDR=a", "RANK=2 is not below SLURM_NTASKS=2"},
  };
  for (const auto& [variables, error] : rows)
    EXPECT_EQ(error_message(place_of(variables)), error);
}

TEST(FindPlace, NamesWhatIsMissingOrWrong) {
  const struct {
    const char *variables, *error, *hint;
  } rows[] = {
      {"WORLD_SIZE=2 MASTER_ADDR=a", "the rank of this job is not known", "pass --rank, or set RANK"},
      {"RANK=0 MASTER_ADDR=a", "the number of ranks of this job is not known", "pass --size, or set WORLD_SIZE"},
      {"RANK=0 WORLD_SIZE=2", "the host of rank 0 is not known", "pass --master HOST:PORT, or set MASTER_ADDR"},
      {"RANK=-1 WORLD_SIZE=2 MASTER_ADDR=a", "RANK: expected a number up to 65536, got `-1`", ""},
      {"RANK=0 WORLD_SIZE=2x MASTER_ADDR=a", "WORLD_SIZE: expected a number up to 65536, got `2x`", ""},
      {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=a", "WORLD_SIZE=0: a job has at least one rank", ""},
      {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT: expected a port from 1 to 65535, got `0`", ""},
      {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=:5", "MASTER_ADDR: `:5` names no host", ""},
      {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=[fd00::1", "MASTER_ADDR: `[fd00::1` has no ]", ""},
      {"RANK=0 WORLD_SIZE=2 SLURM_JOB_NODELIST=n[1", "SLURM_JOB_NODELIST: `n[1` names no host", ""},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(error_message(place_of(row.variables)), row.error) << row.variables;
    EXPECT_EQ(error_hint(place_of(row.variables)), row.hint) << row.variables;
  }
}

TEST(FirstHost, ReadsListsOfSlurm) {
  const std::pair<const char*, const char*> rows[] = {{"node3", "node3"},
                                                      {"node3,node4", "node3"},
                                                      {"node[3-5,9]", "node3"},
                                                      {"gpu[007-9].x", "gpu007.x"},
                                                      {"rack[1-2]n[5-6],z", "rack1n5"},
                                                      {"node[3", ""},
                                                      {"node[]", ""},
                                                      {"node[x-y]", ""},
                                                      {"", ""}};
  for (const auto& [list, host] : rows)
    EXPECT_EQ(first_host(list), host) << list;
}

}  // namespace
