// Which requests bring the API server from its slices to the wanted ones.
#include "shim/dra/api/publication.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>

#include "base/text.hpp"
#include "shim/dra/slices.hpp"

namespace shim {
namespace {

using base::Json;

const SliceCluster kNode{.node = "n1"};

std::vector<Json> slices_with(const std::vector<std::string>& names, const char* taint = nullptr) {
  std::vector<PublishedDevice> devices;
  for (const std::string& name : names) {
    Json device{{"name", name}, {"attributes", Json::object()}};
    if (taint) device["taints"] = Json::array({Json{{"key", taint}, {"effect", "NoSchedule"}}});
    devices.push_back({name, name, device});
  }
  return resource_slices(devices, kNode);
}
std::vector<std::string> numbered(std::size_t count, const std::string& start = "d") {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < count; ++at)
    names.push_back(start + std::to_string(at));
  return names;
}

// An API server that accepts requests as Kubernetes does, and notes each.
class Server {
 public:
  void apply(const std::vector<Json>& wanted) {
    log_.clear();
    for (const SliceChange& change : slice_changes(wanted, listed())) {
      log_ += fmt::format("{}{} ", "DUC"[static_cast<int>(change.kind)], change.name.substr(0, 5));
      if (change.kind == SliceChange::Kind::kDelete) {
        EXPECT_EQ(slices.erase(change.name), 1U);
        continue;
      }
      const auto there = slices.find(change.name);
      ASSERT_EQ(there != slices.end(), change.kind == SliceChange::Kind::kUpdate) << change.name;
      if (there != slices.end())
        EXPECT_EQ(change.body["metadata"]["resourceVersion"], there->second["metadata"]["resourceVersion"]);
      Json body = change.body;
      body["metadata"]["resourceVersion"] = std::to_string(++version_);
      for (Json& device : body["spec"]["devices"]) {
        if (!device.contains("taints")) continue;
        for (Json& taint : device["taints"])
          if (!taint.contains("timeAdded")) taint["timeAdded"] = fmt::format("t{}", version_);
      }
      slices[change.name] = std::move(body);
    }
    check(wanted.size());
  }
  std::vector<Json> listed() const {
    std::vector<Json> all;
    for (const auto& [name, slice] : slices)
      all.push_back(slice);
    return all;
  }
  const std::string& log() const { return log_; }
  std::map<std::string, Json> slices;

 private:
  // The pool is complete: all slices have one generation, and are as many as each says.
  void check(std::size_t count) {
    EXPECT_EQ(slices.size(), count);
    for (const auto& [name, slice] : slices) {
      EXPECT_EQ(slice["spec"]["pool"]["generation"], slices.begin()->second["spec"]["pool"]["generation"]) << name;
      EXPECT_EQ(slice["spec"]["pool"]["resourceSliceCount"], count) << name;
    }
  }
  unsigned version_ = 100;
  std::string log_;
};

TEST(DraPublication, WritesOnlyWhatDiffers) {
  Server server;
  server.apply(slices_with(numbered(70)));
  EXPECT_EQ(server.log(), "C00000 C00001 ");
  server.apply(slices_with(numbered(70)));
  EXPECT_EQ(server.log(), "") << "the generation of the server does not count";
  auto changed = numbered(70);
  changed.back() = "x";
  server.apply(slices_with(changed));
  EXPECT_EQ(server.log(), "U00001 ") << "one slice";
  EXPECT_EQ(server.slices.begin()->second["spec"]["pool"]["generation"], 1);
  server.apply(slices_with(numbered(70, "e")));
  EXPECT_EQ(server.log(), "U00000 U00001 ") << "two slices";
  EXPECT_EQ(server.slices.begin()->second["spec"]["pool"]["generation"], 2);
}

TEST(DraPublication, DeletesSlicesThatAreNotWanted) {
  Server server;
  server.apply(slices_with(numbered(130)));
  server.apply(slices_with(numbered(1)));
  EXPECT_EQ(server.log(), "D00001 D00002 U00000 ");
  server.slices["other"] = server.slices.begin()->second;
  server.slices["other"]["metadata"]["name"] = "other";
  server.slices["other"]["spec"]["pool"]["generation"] = 9;
  server.apply(slices_with(numbered(1)));
  EXPECT_EQ(server.log(), "Dother U00000 ") << "an older version's slice has a higher generation";
  EXPECT_EQ(server.slices.begin()->second["spec"]["pool"]["generation"], 10);
  server.apply(slices_with(numbered(130)));
  EXPECT_EQ(server.log(), "U00000 C00001 C00002 ");
}

TEST(DraPublication, MakesSlicesAgainThatTheKubeletDeleted) {
  Server server;
  server.apply(slices_with(numbered(70)));
  server.slices.clear();
  server.apply(slices_with(numbered(70)));
  EXPECT_EQ(server.log(), "C00000 C00001 ");
  server.slices.erase(server.slices.begin());
  server.apply(slices_with(numbered(70)));
  EXPECT_EQ(server.log(), "U00001 C00000 ");
}

TEST(DraPublication, KeepsTimeOfTaintThatStays) {
  Server server;
  server.apply(slices_with({"a"}, "rdma-init.io/held"));
  const Json time = server.slices.begin()->second["spec"]["devices"][0]["taints"][0]["timeAdded"];
  server.apply(slices_with({"a"}, "rdma-init.io/held"));
  EXPECT_EQ(server.log(), "");
  server.apply(slices_with({"a", "b"}, "rdma-init.io/held"));
  EXPECT_EQ(server.log(), "U00000 ");
  const Json& devices = server.slices.begin()->second["spec"]["devices"];
  EXPECT_EQ(devices[0]["taints"][0]["timeAdded"], time);
  EXPECT_NE(devices[1]["taints"][0]["timeAdded"], time);
  server.apply(slices_with({"a", "b"}));
  EXPECT_EQ(server.log(), "U00000 ");
  EXPECT_FALSE(server.slices.begin()->second["spec"]["devices"][0].contains("taints"));
}

TEST(DraPublication, IgnoresOrderOfMembers) {
  Server server;
  server.apply(slices_with({"a"}));
  Json& slice = server.slices.begin()->second;
  const Json sorted = Json::parse(nlohmann::json::parse(slice.dump()).dump());
  ASSERT_NE(sorted.dump(), slice.dump());
  slice = sorted;
  server.apply(slices_with({"a"}));
  EXPECT_EQ(server.log(), "");
}

TEST(DraPublication, FindsMemberThatTheServerDropped) {
  const Json sent = slices_with({"a", "b"}, "rdma-init.io/held").front();
  Json answer = sent;
  answer["metadata"]["resourceVersion"] = "7";
  EXPECT_EQ(dropped_member(sent, answer), std::nullopt);
  answer["spec"]["devices"][1].erase("taints");
  EXPECT_EQ(dropped_member(sent, answer), "/spec/devices/1/taints");
  answer["spec"]["devices"] = "x";
  EXPECT_EQ(dropped_member(sent, answer), "/spec/devices/0");
  EXPECT_EQ(dropped_member(Json{{"a/b", 1}}, Json{{"a/b", 2}}), "/a~1b");
}

TEST(DraPublication, RefusesWhatIsNoList) {
  const std::string list =
      R"({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {"resourceVersion": "9"})";
  for (const std::string& text :
       {std::string("{}"), std::string("["), list + R"(, "items": {}})", list + R"(, "items": [{}]})",
        list + R"(, "items": [{"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"pool": []}}]})"})
    EXPECT_FALSE(parse_slice_list(text)) << text;
  const auto listed = parse_slice_list(
      list +
      R"(, "items": [{"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"pool": {"generation": 3}}}]})");
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(listed->resource_version, "9");
  const auto changes = slice_changes(slices_with({"a"}), listed->slices);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].body["preconditions"]["resourceVersion"], "1");
  EXPECT_EQ(changes[1].body["spec"]["pool"]["generation"], 4);
  const auto empty = parse_slice_list(list + R"(, "items": null})");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->slices.empty());
}

TEST(DraPublication, BeginsAgainAfterTheHighestGeneration) {
  auto listed = slices_with(numbered(70));
  for (Json& slice : listed) {
    slice["metadata"]["resourceVersion"] = "1";
    slice["spec"]["pool"]["generation"] = INT64_MAX;
  }
  const auto changes = slice_changes(slices_with(numbered(70)), listed);
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[1].kind, SliceChange::Kind::kDelete);
  EXPECT_EQ(changes[2].kind, SliceChange::Kind::kCreate);
  EXPECT_EQ(changes[3].body["spec"]["pool"]["generation"], 1);
}

}  // namespace
}  // namespace shim
