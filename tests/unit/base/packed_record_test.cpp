#include "base/packed_record.hpp"

#include <gtest/gtest.h>

#include "hook/grant/container_request.hpp"

namespace {

using hook::ContainerRequest;

// Has another value than the default in each member that the worker of rdma-nri gets.
ContainerRequest whole_request() {
  const hook::SpecDevice node{"/dev/infiniband/uverbs3", 'c', 231, 195, 3U};
  const fabric::SelectorList list{true, {{fabric::Selector::Kind::kRail, "rail:1", 2U, 1}}, "^rail:1"};
  const hook::HcaSelection selection{hook::HcaSelection::Kind::kList, 2, list, "annotation"};
  ContainerRequest requesting;
  requesting.spec = {.root_path = "rootfs",
                     .annotations = {{"a", "1"}, {"b", "\"\n\xff"}},
                     .env = {"X=1", ""},
                     .devices = {node},
                     .may_use_all_devices = true,
                     .mounts = {{"/sys", true, "/x"}},
                     .has_netns = true,
                     .netns_path = "/run/netns/x",
                     .has_userns = true,
                     .userns_path = "",
                     .maps_node_root = false,
                     .has_own_pidns = true,
                     .cgroups_path = "/a",
                     .moved_netdevs = {"net1", "net2"},
                     .memlock = hook::Rlimit{1, UINT64_MAX},
                     .has_rdma_max = true,
                     .uid = 1000,
                     .has_ipc_lock = true,
                     .may_remount = true};
  requesting.request = hook::Request{.selection = selection,
                                     .granted_nodes = {node},
                                     .has_nodes_of_grant = true,
                                     .narrowed_by = {selection, {}},
                                     .order = {"0000:0c:00.0"},
                                     .mode = hook::Mode::kShared,
                                     .network = "net",
                                     .network_of_pool = "annotation",
                                     .gpu_nodes = {"/dev/nvidia0"},
                                     .gpu_uuids = {"GPU-1"},
                                     .gpu_hint = "all"};
  requesting.pod_note = "note";
  return requesting;
}

TEST(PackedRecord, KeepsEachMemberOfARequest) {
  const ContainerRequest whole = whole_request();
  std::string bytes;
  base::pack(bytes, whole);
  std::string_view rest = bytes;
  ContainerRequest read;
  ASSERT_TRUE(base::unpack(rest, read));
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(read.spec, whole.spec);
  EXPECT_EQ(read.request, whole.request);
  EXPECT_EQ(read.pod_note, whole.pod_note);
}

TEST(PackedRecord, RefusesBytesThatEndTooEarly) {
  std::string bytes;
  base::pack(bytes, whole_request());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    std::string_view cut = std::string_view(bytes).substr(0, size);
    ContainerRequest read;
    EXPECT_FALSE(base::unpack(cut, read)) << size;
  }
}

}  // namespace
