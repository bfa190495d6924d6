#include "shim/dra/api/publication.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "shim/dra/json_path.hpp"

namespace shim {
namespace {

using base::Json;

constexpr std::size_t kMostSlices = 4096;

std::string name_of_slice(const Json& slice) {
  return text_of(slice, {"metadata", "name"});
}

std::uint64_t generation_of(const Json& slice) {
  const Json* const generation = find_at(slice, {"spec", "pool", "generation"});
  const bool is_number = generation && generation->is_number_integer() && *generation >= 0;
  return is_number ? generation->get<std::uint64_t>() : 0;
}

// Returns the text of a value with sorted keys: the API server returns members in another order.
std::string sorted_text(const Json& value) {
  std::string text;
  if (value.is_object()) {
    std::map<std::string, const Json*> members;
    for (const auto& [name, part] : value.items())
      members.emplace(name, &part);
    for (const auto& [name, part] : members)
      text += fmt::format("{}:{},", base::to_text(name), sorted_text(*part));
    return "{" + text + "}";
  }
  if (!value.is_array()) return base::to_text(value);
  for (const Json& part : value)
    text += sorted_text(part) + ",";
  return "[" + text + "]";
}

// Returns the specification without the generation, and without the times that the API server adds to taints.
std::string essence_of(const Json& slice) {
  Json spec = slice.at("spec");
  spec["pool"].erase("generation");
  Json* const devices = spec.contains("devices") && spec["devices"].is_array() ? &spec["devices"] : nullptr;
  for (std::size_t index = 0; devices && index < devices->size(); ++index) {
    Json& device = (*devices)[index];
    if (!device.is_object() || !device.contains("taints") || !device["taints"].is_array()) continue;
    for (Json& taint : device["taints"])
      if (taint.is_object()) taint.erase("timeAdded");
  }
  return sorted_text(spec);
}

const Json* find_named(const Json* list, const char* member, const std::string& value) {
  if (!list || !list->is_array()) return nullptr;
  const auto found = std::ranges::find_if(*list, [&](const Json& one) { return text_of(one, {member}) == value; });
  return found == list->end() ? nullptr : &*found;
}

// Copies the times at which the API server added the taints that stay.
void keep_times(const Json& listed, Json& wanted) {
  for (Json& device : wanted["spec"]["devices"]) {
    const Json* const old = find_named(find_at(listed, {"spec", "devices"}), "name", text_of(device, {"name"}));
    if (!old || !device.contains("taints")) continue;
    for (Json& taint : device["taints"]) {
      const Json* const same = find_named(base::member(*old, "taints"), "key", text_of(taint, {"key"}));
      if (same && text_of(*same, {"effect"}) == text_of(taint, {"effect"}) && same->contains("timeAdded"))
        taint["timeAdded"] = same->at("timeAdded");
    }
  }
}

SliceChange removal_of(const Json& listed) {
  Json body{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  body["preconditions"] = Json{{"resourceVersion", text_of(listed, {"metadata", "resourceVersion"})}};
  return {SliceChange::Kind::kDelete, name_of_slice(listed), std::move(body)};
}

// listed: the slice of this name at the API server; nullptr: there is none.
SliceChange write_of(Json wanted, const Json* listed, std::uint64_t generation) {
  wanted["spec"]["pool"]["generation"] = generation;
  std::string name = name_of_slice(wanted);
  if (!listed) return {SliceChange::Kind::kCreate, std::move(name), std::move(wanted)};
  keep_times(*listed, wanted);
  wanted["metadata"]["resourceVersion"] = listed->at("metadata").at("resourceVersion");
  return {SliceChange::Kind::kUpdate, std::move(name), std::move(wanted)};
}

std::optional<std::string> first_missing(const Json& sent, const Json& answer, const std::string& path) {
  const auto below = [&](const Json& part, const Json* got, const std::string& name) -> std::optional<std::string> {
    const std::string inside = path + "/" + base::escape_pointer(name);
    return got ? first_missing(part, *got, inside) : std::optional(inside);
  };
  if (sent.is_object()) {
    for (const auto& [name, part] : sent.items())
      if (auto missing = below(part, base::member(answer, name.c_str()), name)) return missing;
  } else if (sent.is_array()) {
    for (std::size_t index = 0; index < sent.size(); ++index) {
      const bool has = answer.is_array() && index < answer.size();
      if (auto missing = below(sent[index], has ? &answer[index] : nullptr, std::to_string(index))) return missing;
    }
  } else if (sent != answer) {
    return path;
  }
  return std::nullopt;
}

}  // namespace

Result<ListedSlices> parse_slice_list(std::string_view text) {
  Json json = TRY(base::parse_json(text, "the list of ResourceSlices", kSliceLimits));
  if (text_of(json, {"kind"}) != "ResourceSliceList" || text_of(json, {"apiVersion"}) != "resource.k8s.io/v1")
    return Error{"the API server answers no ResourceSliceList of resource.k8s.io/v1"};
  ListedSlices listed;
  listed.resource_version = text_of(json, {"metadata", "resourceVersion"});
  const Json* const items = find_at(json, {"items"});
  const bool is_list = items && items->is_array() && items->size() <= kMostSlices;
  if (!is_list && items && !items->is_null()) return Error{"the list of ResourceSlices has no list of items"};
  if (!is_list) return listed;
  for (const Json& slice : *items) {
    const Json* const spec = find_at(slice, {"spec"});
    const bool is_whole = spec && spec->is_object() && find_at(*spec, {"pool"}) &&
                          find_at(*spec, {"pool"})->is_object() && !name_of_slice(slice).empty() &&
                          !text_of(slice, {"metadata", "resourceVersion"}).empty();
    if (!is_whole) return make_error("item {} of the ResourceSliceList is no ResourceSlice", listed.slices.size());
    listed.slices.push_back(slice);
  }
  return listed;
}

std::vector<SliceChange> slice_changes(const std::vector<Json>& wanted, const std::vector<Json>& listed) {
  std::map<std::string, const Json*> rest;
  std::uint64_t generation = 0;
  for (const Json& slice : listed) {
    rest.emplace(name_of_slice(slice), &slice);
    generation = std::max(generation, generation_of(slice));
  }
  // No generation follows the highest one: all slices are deleted, and made with the first one.
  const bool restarts = generation >= INT64_MAX;
  if (restarts) generation = 0;
  std::vector<std::pair<const Json*, const Json*>> pairs;  // each wanted slice, and that of the API server
  std::size_t different = 0;
  bool is_new = false;
  for (const Json& slice : wanted) {
    const auto found = restarts ? rest.end() : rest.find(name_of_slice(slice));
    pairs.emplace_back(&slice, found == rest.end() ? nullptr : found->second);
    if (found != rest.end()) rest.erase(found);
    const Json* const there = pairs.back().second;
    is_new = is_new || !there || generation_of(*there) != generation;
    if (!there || essence_of(*there) != essence_of(slice)) ++different;
  }
  is_new = is_new || !rest.empty() || different > 1;
  std::vector<SliceChange> changes;
  for (const auto& [name, slice] : rest)
    changes.push_back(removal_of(*slice));
  for (const auto& [slice, there] : pairs) {
    const bool is_same = there && !is_new && essence_of(*there) == essence_of(*slice);
    if (!is_same) changes.push_back(write_of(*slice, there, generation + (is_new ? 1 : 0)));
  }
  std::ranges::stable_sort(changes, {}, &SliceChange::kind);
  return changes;
}

std::optional<std::string> dropped_member(const Json& sent, const Json& answer) {
  return first_missing(sent, answer, "");
}

}  // namespace shim
