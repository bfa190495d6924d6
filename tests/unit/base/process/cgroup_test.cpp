#include "base/process/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "hook/apply/live/device_cgroup.hpp"
#include "support/results.hpp"

namespace hook {
namespace {

TEST(Cgroup, ParsesMounts) {
  const char* text =
      "22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw\n"
      "30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
      "35 30 0:31 / /sys/fs/cgroup/devices rw shared:9 - cgroup cgroup rw,devices\n"
      "36 30 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "37 30 0:33 /docker/ab /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw,nsdelegate\n"
      "38 30 0:34 short - cgroup2 cgroup2 rw\n"
      "40 30 0:36 / /sys/fs/cgroup/rdma rw - cgroup cgroup rw,rdma\n"
      "39 30 0:35 / /x rw master:1 propagate_from:2 - cgroup none rw,cpu,devices\n"
      "no dash\n";
  const std::vector<CgroupMount> expected = {
      {CgroupKind::kV1Devices, "/", "/sys/fs/cgroup/devices"},
      {CgroupKind::kV2, "/docker/ab", "/sys/fs/cgroup/uni fied"},
      {CgroupKind::kV1Rdma, "/", "/sys/fs/cgroup/rdma"},
      {CgroupKind::kV1Devices, "/", "/x"},
  };
  EXPECT_EQ(parse_cgroup_mounts(text), expected);
}

TEST(Cgroup, FindsPathBelowMountAndAncestors) {
  const std::tuple<const char*, const char*, std::optional<std::string>> rows[] = {
      {"/", "/a/b", "/a/b"},
      {"/", "/", "/"},
      {"/docker/ab", "/docker/ab", "/"},
      {"/docker/ab", "/docker/ab/c", "/c"},
      {"/docker/ab", "/docker/abc", std::nullopt},
      {"/docker/ab", "/other", std::nullopt},
      {"/", "/../x", std::nullopt},
      {"/", "/..", std::nullopt},
      {"/..", "/../x", "/x"},
      {"/..", "/../../x", std::nullopt},
      {"/", "/..data", "/..data"}};
  for (const auto& [root, path, expected] : rows)
    EXPECT_EQ(path_below({CgroupKind::kV2, root, "/m"}, path), expected) << root << " " << path;
  const Cgroup cgroup{CgroupKind::kV2, "/m", "/a.slice/b.scope/container"};
  std::vector<std::string> paths;
  for (const Cgroup& each : with_ancestors(cgroup))
    paths.push_back(each.path + " " + each.directory());
  EXPECT_EQ(paths, (std::vector<std::string>{"/a.slice/b.scope/container /m/a.slice/b.scope/container",
                                             "/a.slice/b.scope /m/a.slice/b.scope", "/a.slice /m/a.slice", "/ /m"}));
}

TEST(Cgroup, DetectsSystemdUnits) {
  const struct {
    const char* path;
    bool systemds, unit, inside_scope;
  } rows[] = {{"/", false, false, false},
              {"/docker/ab", false, false, false},
              {"/kubepods.slice/cri-containerd-ab.scope", true, true, false},
              {"/machine.slice/libpod-ab.scope/container", true, false, true},
              {"/system.slice/rdma.service", true, true, false},
              {"/system.slice/x.service/container", true, false, false},
              {"/user.slice/session-3.scope/runc/ab", false, false, false}};
  for (const auto& row : rows) {
    const Cgroup cgroup{CgroupKind::kV2, "/m", row.path};
    EXPECT_EQ(is_systemds(cgroup), row.systemds) << row.path;
    EXPECT_EQ(is_unit(cgroup), row.unit) << row.path;
    EXPECT_EQ(is_inside_scope(cgroup), row.inside_scope) << row.path;
  }
}

TEST(Cgroup, FindsOwnGroups) {
  const auto groups = test_support::must(device_cgroups(getpid()));
  for (const Cgroup& cgroup : groups)
    EXPECT_TRUE(open_cgroup(cgroup)) << cgroup.directory();
}

TEST(Cgroup, RefusesOtherFileSystems) {
  EXPECT_FALSE(open_cgroup({CgroupKind::kV2, "/proc", "/self"}));
  EXPECT_EQ(open_cgroup({CgroupKind::kV2, "/proc", "/"}).error().message,
            "cannot use the cgroup `/proc`: it is not on a cgroup file system");
}

TEST(DeviceCgroupV1, FindsGrantInList) {
  const std::pair<const char*, V1Grant> rows[] = {
      {"", V1Grant::kNo},
      {"a *:* rwm\n", V1Grant::kAll},
      {"c 1:3 rwm\nc 231:192 rw\n", V1Grant::kYes},
      {"c 231:* rwm\n", V1Grant::kYes},
      {"c *:* m\nb *:* m\n", V1Grant::kNo},
      {"c 231:192 r\n", V1Grant::kNo},
      {"b 231:192 rw\n", V1Grant::kNo},
      {"c 231:1920 rw\nc 31:192 rw\nc 231 rw\nc 231:192\n", V1Grant::kNo},
  };
  for (const auto& [list, expected] : rows)
    EXPECT_EQ(find_v1_grant(list, {231, 192}), expected) << list;
  EXPECT_EQ(v1_rule({231, 192}), "c 231:192 rw");
}

}  // namespace
}  // namespace hook
