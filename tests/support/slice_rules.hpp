// The rules of the API server of Kubernetes for a ResourceSlice, written apart from the product's code, so that a test
// fails if both disagree. Source: pkg/apis/resource/validation and the types of resource.k8s.io/v1, Kubernetes 1.34 to
// 1.36.
#pragma once

#include <fmt/core.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.hpp"

namespace test_support {

class SliceRules {
 public:
  explicit SliceRules(unsigned minor) : minor_(minor) {}

  // Returns every fault of the slices of one node, one a line; empty: the API server accepts them.
  std::string faults_of(const std::vector<base::Json>& slices) {
    faults_.clear();
    std::set<std::string> names;
    for (const base::Json& slice : slices) {
      check(slice.at("apiVersion") == "resource.k8s.io/v1" && slice.at("kind") == "ResourceSlice", "type", "");
      only(slice, {"apiVersion", "kind", "metadata", "spec"});
      only(slice.at("metadata"), {"name", "ownerReferences"});
      subdomain(slice.at("metadata").at("name"));
      check(names.insert(slice.at("metadata").at("name").get<std::string>()).second, "two slices have the name",
            slice.at("metadata"));
      check_spec(slice.at("spec"), slices.size());
    }
    return faults_;
  }

 private:
  void check(bool good, const char* rule, const base::Json& value) {
    if (!good) faults_ += fmt::format("{}: {}\n", rule, value.dump());
  }
  void only(const base::Json& object, const std::set<std::string>& members) {
    for (const auto& [name, value] : object.items())
      check(members.contains(name), "unknown member", name);
  }
  void matches(const base::Json& value, const char* pattern, std::size_t longest, const char* rule) {
    static std::map<std::string, std::regex> made;  // to compile an expression takes most of the time
    const auto text = value.get<std::string>();
    check(text.size() <= longest && std::regex_match(text, made.try_emplace(pattern, pattern).first->second), rule,
          text);
  }
  void subdomain(const base::Json& text) {
    matches(text, "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*", 253, "no DNS subdomain");
  }

  void check_spec(const base::Json& spec, std::size_t count) {
    only(spec, {"driver", "nodeName", "pool", "devices"});
    subdomain(spec.at("driver"));
    check(spec.at("driver").get<std::string>().size() <= 63, "long driver", spec.at("driver"));
    subdomain(spec.at("nodeName"));
    only(spec.at("pool"), {"name", "generation", "resourceSliceCount"});
    subdomain(spec.at("pool").at("name"));
    check(spec.at("pool").at("resourceSliceCount") == count, "another number of slices", spec.at("pool"));
    bool has_taint = false;
    for (const base::Json& device : spec.at("devices")) {
      check(devices_.insert(device.at("name").get<std::string>()).second, "two devices have the name",
            device.at("name"));
      check_device(device);
      has_taint = has_taint || device.contains("taints");
    }
    check(spec.at("devices").size() <= (has_taint ? 64U : 128U), "too many devices", spec.at("devices").size());
  }

  void check_device(const base::Json& device) {
    // Older versions drop the other members in silence, which a driver must not rely on.
    if (minor_ >= 36) {
      only(device, {"name", "attributes", "capacity", "allowMultipleAllocations", "taints"});
    } else {
      only(device, {"name", "attributes"});
    }
    matches(device.at("name"), "[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63, "no DNS label");
    const std::size_t capacities = device.contains("capacity") ? device["capacity"].size() : 0;
    check(device.at("attributes").size() + capacities <= 32, "too many attributes", device.at("name"));
    for (const auto& [name, value] : device.at("attributes").items())
      check_attribute(name, value);
    check(capacities == 0 || device.value("allowMultipleAllocations", false), "a capacity of one claim", device);
    if (capacities > 0)
      for (const auto& [name, capacity] : device["capacity"].items())
        check_capacity(name, capacity);
    if (device.contains("taints")) check_taints(device["taints"]);
  }

  void check_attribute(const std::string& name, const base::Json& value) {
    const std::size_t slash = name.find('/');
    if (slash != std::string::npos) subdomain(name.substr(0, slash));
    matches(name.substr(slash == std::string::npos ? 0 : slash + 1), "[A-Za-z_][A-Za-z0-9_]*", 32, "no identifier");
    check(value.size() == 1, "not one value", value);
    const std::string type = value.begin().key();
    if (type == "string") {
      const auto text = value["string"].get<std::string>();
      check(!text.empty() && text.size() <= 64, "no attribute's text", text);
    } else {
      check(type == "int" ? value["int"].is_number_integer() : type == "bool" && value["bool"].is_boolean(),
            "no attribute's value", value);
    }
  }

  void check_capacity(const std::string& name, const base::Json& capacity) {
    matches(name, "[A-Za-z_][A-Za-z0-9_]*", 32, "no identifier");
    const int value = std::stoi(capacity.at("value").get<std::string>());
    const base::Json& policy = capacity.at("requestPolicy");
    check(policy.contains("validRange") != policy.contains("validValues"), "not one policy", policy);
    const int standard = std::stoi(policy.at("default").get<std::string>());
    if (policy.contains("validRange")) {
      const int least = std::stoi(policy["validRange"].at("min").get<std::string>());
      const int step = std::stoi(policy["validRange"].value("step", "0"));
      check(least + step <= value && standard >= least && standard <= value, "no range", capacity);
    } else {
      check(policy["validValues"].size() == 1 && policy["validValues"][0] == policy["default"] && standard <= value,
            "no values", capacity);
    }
  }

  void check_taints(const base::Json& taints) {
    check(!taints.empty() && taints.size() <= 16, "no number of taints", taints);
    for (const base::Json& taint : taints) {
      only(taint, {"key", "effect"});
      matches(taint.at("key"), "[a-z0-9.-]+/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?", 253, "no key");
      check(taint.at("effect") == "NoSchedule", "no effect", taint);
    }
  }

  unsigned minor_;
  std::set<std::string> devices_;
  std::string faults_;
};

}  // namespace test_support
