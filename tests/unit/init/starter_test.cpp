#include "init/starter.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace {

using namespace init;
using Engine = Starter::Engine;

// Returns true if this machine has one of the mounts of Apptainer and Charliecloud, as a container of Docker has.
bool has_mounts_of_user() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    for (const char* file : {" /etc/passwd ", " /etc/resolv.conf "}) {
      if (line.find(file) != line.npos) return true;
    }
  }
  return false;
}

TEST(Starter, IsFoundByItsVariablesAndMounts) {
  for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "CH_RUNNING", "SLURM_JOB_ID"})
    ::unsetenv(name);
  EXPECT_EQ(find_starter("").engine, Engine::kOther);
  EXPECT_EQ(find_starter("/nonexistent").engine, Engine::kEnroot);
  const auto found = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    const Starter starter = find_starter("");
    ::unsetenv(name);
    return starter;
  };
  EXPECT_EQ(found("APPTAINER_CONTAINER", "").engine, Engine::kOther);
  // A job that was submitted from such a container has only the variable. slurm.enroot makes the mounts too.
  const bool is_engine = has_mounts_of_user();
  EXPECT_EQ(found("APPTAINER_CONTAINER", "/image.sif").engine, is_engine ? Engine::kApptainer : Engine::kOther);
  EXPECT_EQ(found("SINGULARITY_CONTAINER", "/image.sif").engine, is_engine ? Engine::kApptainer : Engine::kOther);
  EXPECT_EQ(found("CH_RUNNING", "Weird Al Yankovic").engine, is_engine ? Engine::kCharliecloud : Engine::kOther);
  EXPECT_TRUE(found("SLURM_JOB_ID", "7").slurm);
}

TEST(Starter, HasRemediesOfItsOwn) {
  const struct {
    Starter starter;
    const char* remedy;
    const char* part;  // a part of the result
  } rows[] = {{{Engine::kOther}, kNodeRemedy, "--device=/dev/infiniband or --bind /dev/infiniband"},
              {{Engine::kApptainer}, kNodeRemedy, "with `--bind /dev/infiniband`, and without `--no-mount dev`"},
              {{Engine::kCharliecloud}, kNodeRemedy, "start the container with `--bind /dev/infiniband`"},
              {{Engine::kEnroot}, kNodeRemedy, "ENROOT_RESTRICT_DEV"},
              {{Engine::kOther}, kCgroupRemedy, "--device=/dev/infiniband"},
              {{Engine::kEnroot, true}, kCgroupRemedy, "--gres=rdma:1"},
              {{Engine::kApptainer}, kCgroupRemedy, "--gres=rdma:1"},
              {{Engine::kApptainer}, kSysRemedy, "`--bind /sys`"},
              {{Engine::kEnroot}, kSysRemedy, kSysRemedy},
              {{Engine::kEnroot, false, true}, kDriverRemedy, "MELLANOX_VISIBLE_DEVICES"},
              {{Engine::kEnroot}, kDriverRemedy, "or leave ENROOT_UNSHARE_NET unset"},
              {{Engine::kEnroot}, kDriverRemedy, kDriverRemedy},
              {{Engine::kOther}, kMemlockRemedy, "crio.conf"},
              {{Engine::kOther, true}, kMemlockRemedy, "LimitMEMLOCK=infinity in slurmd.service"},
              {{Engine::kEnroot, true}, kMemlockRemedy, "PropagateResourceLimitsExcept=MEMLOCK"},
              {{Engine::kApptainer}, kMemlockRemedy, "the shell that starts the container"},
              {{Engine::kOther}, kRootlessMemlockRemedy, "user@.service"},
              {{Engine::kApptainer}, kRootlessMemlockRemedy, "the shell that starts the container"},
              {{Engine::kOther, true}, kRootlessMemlockRemedy, "LimitMEMLOCK=infinity in slurmd.service"},
              {{Engine::kApptainer, true, true}, "check the cable", "check the cable"}};
  for (const auto& row : rows)
    EXPECT_NE(remedy_for(row.starter, row.remedy).find(row.part), std::string::npos) << row.part;
}

}  // namespace
