// Members that are read from a container's config.json.
#include "hook/oci/container_spec.hpp"

#include <gtest/gtest.h>

#include "base/json/json.hpp"
#include "support/results.hpp"

namespace hook {
namespace {

using test_support::must;

Json json(const char* text) {
  return Json::parse(text);
}

TEST(ContainerSpec, ReadsMembers) {
  const auto spec = read_container_spec(json(R"({
    "root": {"path": "rootfs"},
    "annotations": {"rdma-init.io/devices": "all"},
    "process": {"env": ["RDMA_A=1", "PATH=/bin", "RDMA_A=2", "RDMA_B="], "user": {"uid": 1000},
                "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2},
                            {"type": "RLIMIT_MEMLOCK", "soft": 1, "hard": 1},
                            {"type": "RLIMIT_MEMLOCK", "soft": 65536, "hard": 18446744073709551615}]},
    "mounts": [{"destination": "/sys", "type": "sysfs"}],
    "linux": {"devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192},
                          {"path": "/dev/x", "type": "u", "major": 231, "minor": 193}],
              "namespaces": [{"type": "network", "path": "/var/run/netns/cni-1"}, {"type": "user"}]}})"));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->root_path, "rootfs");
  EXPECT_EQ(spec->annotations.at("rdma-init.io/devices"), "all");
  EXPECT_EQ(spec->uid, 1000U);
  EXPECT_EQ(spec->memlock, (Rlimit{65536, UINT64_MAX}));  // the last one counts
  EXPECT_EQ(spec->mounts, std::vector<SpecMount>{{"/sys"}});
  EXPECT_EQ(spec->devices,
            (std::vector<SpecDevice>{{"/dev/infiniband/uverbs0", 'c', 231, 192}, {"/dev/x", 'c', 231, 193}}));
  EXPECT_TRUE(spec->has_netns);
  EXPECT_EQ(spec->netns_path, "/var/run/netns/cni-1");
  EXPECT_TRUE(spec->has_userns);
  EXPECT_EQ(find_env(*spec, "RDMA_A"), "2");  // the last one counts
  EXPECT_EQ(find_env(*spec, "RDMA_B"), "");
  EXPECT_EQ(find_env(*spec, "RDMA_C"), std::nullopt);
  EXPECT_EQ(find_env(*spec, "PATH"), std::nullopt) << "not read";
}

TEST(ContainerSpec, DetectsWhetherNodeMountsAreWritable) {
  const char* const admin = R"({"bounding": ["CAP_CHOWN", "CAP_SYS_ADMIN"]})";
  const char* const user = R"([{"type": "user"}])";
  const char* const joined = R"([{"type": "user", "path": "/proc/7/ns/user"}])";
  const struct {
    const char *capabilities, *namespaces, *mappings;
    MayWrite may;
  } rows[] = {
      {admin, R"([{"type": "mount"}])", "null", MayWrite::kYes},
      {R"({"bounding": [], "effective": ["cap_sys_admin"]})", "[]", "null", MayWrite::kYes},
      {R"({"ambient": ["CAP_SYS_ADMIN"], "bounding": null})", "[]", "null", MayWrite::kYes},
      {R"({"bounding": ["cap_sys_admin\u0000"]})", "[]", "null", MayWrite::kYes},
      {R"({"bounding": ["CAP_SYS_ADMINS", "CAP_SYS_CHROOT", 7]})", "[]", "null", MayWrite::kNo},
      {"null", "[]", "null", MayWrite::kNo},
      {admin, user, R"([{"containerID": 0, "hostID": 100000, "size": 65536}])", MayWrite::kNo},
      {admin, user, R"([{"containerID": 0, "hostID": 100000, "size": 1}, {"containerID": 5, "hostID": 0, "size": 1}])",
       MayWrite::kYes},
      {admin, user, R"([{"containerID": 0, "hostID": 0, "size": 0}])", MayWrite::kNo},
      {admin, joined, "null", MayWrite::kUnknown},
      {admin, joined, R"([{"containerID": 0, "hostID": 0, "size": 65536}])", MayWrite::kYes},
      {"null", user, R"([{"containerID": 0, "hostID": 0, "size": 65536}])", MayWrite::kNo}};
  for (const auto& [capabilities, namespaces, mappings, may] : rows) {
    Json config;
    config["process"]["capabilities"] = json(capabilities);
    config["linux"]["namespaces"] = json(namespaces);
    config["linux"]["uidMappings"] = json(mappings);
    EXPECT_EQ(may_write_to_mounts(must(read_container_spec(config))), may) << capabilities << namespaces << mappings;
  }
  // uid_map with and without the node's root.
  EXPECT_TRUE(maps_root("         0          0 4294967295\n"));
  EXPECT_TRUE(maps_root("0 100000 65536\n65536 0 1\n"));
  EXPECT_FALSE(maps_root("0 100000 65536\n"));
  EXPECT_FALSE(maps_root(""));
}

TEST(ContainerSpec, LastRuleOfAllDevicesDecides) {
  const std::pair<const char*, bool> rows[] = {
      {R"([])", false},
      {R"([{"allow": true, "access": "rwm"}])", true},
      {R"([{"allow": true, "type": "a", "access": "rwm"}])", true},
      {R"([{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 231, "minor": 192}])", false},
      {R"([{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "access": "m"}])", false},
      {R"([{"allow": false, "access": "rwm"}, {"allow": true, "type": "a", "major": 231}])", false},
      {R"([{"allow": true, "access": "rwm"}, {"allow": false, "access": "rwm"}])", false},
      {R"([{"allow": true, "access": "rw"}])", true},
      {R"([{"allow": true, "access": "m"}])", false},
      {R"([{"allow": true, "access": "rm"}])", false},
      {R"([{"allow": true}])", false},
      {R"([{"allow": true, "access": "rwm"}, {"allow": false, "access": "m"}])", true},
      {R"([{"allow": true, "access": "rwm"}, {"allow": false, "access": "w"}])", false},
      {R"([{"allow": true, "access": "rwm"}, {"allow": false}])", false},
      {R"([{"allow": false, "access": "rwm"}, {"allow": true, "access": "rwm"}, {"allow": false, "type": "b"}])", true},
  };
  for (const auto& [rules, expected] : rows) {
    const std::string config = fmt::format(R"({{"linux": {{"resources": {{"devices": {}}}}}}})", rules);
    EXPECT_EQ(must(read_container_spec(json(config.c_str()))).may_use_all_devices, expected) << rules;
  }
}

TEST(ContainerSpec, OptionalMembersMayBeMissingOrNull) {
  for (const char* text :
       {"{}", R"({"root": null, "annotations": null, "process": null, "mounts": null, "linux": null})",
        R"({"process": {"env": null, "user": null, "rlimits": null}, "linux": {"devices": null}})"}) {
    const auto spec = must(read_container_spec(json(text)));
    EXPECT_EQ(spec.root_path, "") << text;
    EXPECT_FALSE(spec.has_netns) << text;
    EXPECT_EQ(spec.memlock, std::nullopt) << text;
  }
}

TEST(ContainerSpec, ErrorsNameTheMember) {
  const std::pair<const char*, const char*> rows[] = {
      {"[]", "`config.json` of the container: expected an object"},
      {R"({"annotations": []})", "`annotations`: expected an object"},
      {R"({"annotations": {"a": 1}})", "`annotations.a`: expected a string"},
      {R"({"root": {"path": 1}})", "`root.path`: expected a string"},
      {R"({"process": {"env": ["A=1", 2]}})", "`process.env[1]`: expected a string"},
      {R"({"process": {"env": {}}})", "`process.env`: expected an array"},
      {R"({"process": {"user": {"uid": 4294967296}}})", "`process.user.uid`: 4294967296 is larger than 4294967295"},
      {R"({"process": {"user": {"uid": -1}}})", "`process.user.uid`: expected a number from 0"},
      {R"({"process": {"rlimits": [{"type": "RLIMIT_MEMLOCK", "soft": -1}]}})",
       "`process.rlimits[0].soft`: expected a number from 0"},
      {R"({"process": {"rlimits": [7]}})", "`process.rlimits[0]`: expected an object"},
      {R"({"linux": {"devices": [{"path": "/a", "type": "c"}, {"path": "/b", "type": "c", "major": "1"}]}})",
       "`linux.devices[1].major`: expected a number"},
      {R"({"linux": {"devices": [{"path": "/a", "type": "c", "major": 18446744073709551615}]}})",
       "`linux.devices[0].major`: expected a number"},
      {R"({"linux": {"devices": [{"path": "/a", "type": "c", "major": 1.5}]}})",
       "`linux.devices[0].major`: expected a number"},
      {R"({"linux": {"devices": [{"path": "/a", "type": "char"}]}})", "`linux.devices[0].type`: expected one letter"},
      {R"({"linux": {"namespaces": [{"type": 1}]}})", "`linux.namespaces[0].type`: expected a string"},
      {R"({"mounts": [{"destination": {}}]})", "`mounts[0].destination`: expected a string"}};
  for (const auto& [config, error] : rows)
    EXPECT_EQ(read_container_spec(json(config)).error().message, error) << config;
}

TEST(ContainerSpec, ReadsPodIdentityOfKubernetesEnginesOnly) {
  ContainerSpec spec;
  spec.annotations = {{"io.kubernetes.cri.sandbox-namespace", "team-a"},
                      {"io.kubernetes.cri.container-name", "trainer"},
                      {"io.kubernetes.cri.container-type", "sandbox"},
                      {"io.kubernetes.pod.namespace", "team-b"},
                      {"io.kubernetes.container.name", "sidecar"},
                      {"io.kubernetes.cri-o.ContainerType", "container"},
                      {"io.kubernetes.cri.sandbox-name", "train-0"},
                      {"io.kubernetes.pod.name", "train-1"},
                      {"io.kubernetes.cri.sandbox-uid", "u0"},
                      {"io.kubernetes.pod.uid", "u1"},
                      {"io.kubernetes.cri.sandbox-id", "s0"},
                      {"io.kubernetes.cri-o.SandboxID", "s1"}};
  const PodIdentity containerd = pod_identity(spec, Engine::kContainerd);
  EXPECT_EQ(containerd.pod_namespace, "team-a");
  EXPECT_EQ(containerd.container_name, "trainer");
  EXPECT_TRUE(containerd.is_sandbox);
  EXPECT_EQ(containerd.pod_name + containerd.pod_uid + containerd.sandbox_id, "train-0u0s0");
  const PodIdentity crio = pod_identity(spec, Engine::kCrio);
  EXPECT_EQ(crio.pod_namespace, "team-b");
  EXPECT_EQ(crio.container_name, "sidecar");
  EXPECT_FALSE(crio.is_sandbox);
  EXPECT_EQ(crio.pod_name + crio.pod_uid + crio.sandbox_id, "train-1u1s1");
  // The sandbox's metadata, which rdma-nri also gets, and not the container's labels.
  EXPECT_TRUE(check_pod_namespace(spec, Engine::kCrio));
  spec.annotations["io.kubernetes.cri-o.SandboxName"] = "k8s_train-1_team-c_u1_0";
  EXPECT_EQ(pod_identity(spec, Engine::kCrio).pod_namespace, "team-c");
  EXPECT_EQ(
      check_pod_namespace(spec, Engine::kCrio).error().message,
      "cannot determine the pod's namespace: its sandbox has `team-c`, the label `io.kubernetes.pod.namespace` has "
      "`team-b`");
  EXPECT_TRUE(check_pod_namespace(spec, Engine::kContainerd));
  spec.annotations["io.kubernetes.cri-o.SandboxName"] = "k8s_train-1_team-b_u1_0";
  EXPECT_TRUE(check_pod_namespace(spec, Engine::kCrio));
  // Under Podman, an image's manifest can contain all of these.
  for (const Engine engine : {Engine::kPodman, Engine::kRunc, Engine::kDocker}) {
    const PodIdentity none = pod_identity(spec, engine);
    EXPECT_EQ(none.pod_namespace, "");
    EXPECT_EQ(none.container_name, "");
    EXPECT_FALSE(none.is_sandbox);
    EXPECT_EQ(none.pod_name + none.pod_uid + none.sandbox_id, "");
  }
}

}  // namespace
}  // namespace hook
