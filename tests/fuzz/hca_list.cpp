// Any text as --hca, NCCL_IB_HCA, and other small values of users and images.
#include <cstring>

#include "arbitrary.hpp"
#include "fabric/selectors.hpp"
#include "init/exports.hpp"
#include "init/nccl_rules.hpp"
#include "init/rail_place.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

constexpr const char* kNames[] = {"mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11", "rocep1s0f0", "m"};

// NCCL's own algorithm (src/misc/utils.cc, 2.30.7): copy, walk, compare with strncmp or strcmp.
bool nccl_takes(const std::string& value, const char* name, int port, bool empty_port_is_any) {
  const char* text = value.c_str();
  const bool exclude = *text == '^';
  if (exclude) ++text;
  const bool exact = *text == '=';
  if (exact) ++text;
  unsigned entries = 0;
  bool hit = false;
  while (*text != '\0' && entries < 32) {
    const std::size_t length = std::strcspn(text, ",");
    const std::string entry(text, length);
    text += length + (text[length] == ',' ? 1 : 0);
    if (entry.empty()) continue;
    ++entries;
    const std::size_t colon = entry.find(':');
    const std::string prefix = entry.substr(0, std::min<std::size_t>(colon, 63));
    int wanted = -1;
    if (colon != std::string::npos) {
      const bool empty = colon + 1 == entry.size() || entry[colon + 1] == ':';
      if (!empty || !empty_port_is_any) wanted = static_cast<int>(std::strtol(entry.c_str() + colon + 1, nullptr, 10));
    }
    const bool same = exact ? prefix == name : std::strncmp(name, prefix.c_str(), prefix.size()) == 0;
    hit |= same && (wanted == -1 || wanted == port);
  }
  return entries == 0 ? !exclude : hit != exclude;
}

void check_nccl(const std::string& value, const init::nccl::Version& version) {
  // A variable ends at its first zero byte.
  const std::string text = value.substr(0, value.find('\0'));
  const auto list = init::nccl::parse_hca_list(text, version);
  require(list.entries.size() <= init::nccl::kMaxPorts, "a list has at most 32 entries", text);
  // strtol() and atoi() agree within int.
  for (const auto& entry : list.entries)
    if (entry.port != static_cast<int>(entry.port)) return;
  for (const char* name : kNames) {
    for (const unsigned port : {1U, 2U}) {
      const bool expected = nccl_takes(text, name, static_cast<int>(port), version >= init::nccl::kEmptyPortIsAny);
      require(list.matches(name, port) == expected, "NCCL_IB_HCA selects as NCCL does", text);
    }
  }
}

void check_selectors(const std::string& text) {
  const auto list = fabric::parse_selectors(text);
  if (!list) return fuzz::require_one_line(list.error().message, "the refusal of --hca");
  require(!list->selectors.empty(), "an accepted list selects something", text);
  auto opposite = *list;
  opposite.exclude = !opposite.exclude;
  for (const char* name : kNames) {
    fabric::Hca hca;
    hca.name = name;
    hca.pci = "0000:0c:00.0";
    hca.node_guid = "0c42:a103:0000:0001";
    const fabric::Port port;
    require(
        fabric::selects(*list, hca, port, {"eth0", "net1"}) != fabric::selects(opposite, hca, port, {"eth0", "net1"}),
        "an exclusion takes exactly the other ports", text);
  }
  // A name without a special character selects only the HCA of that name.
  if (list->text.find_first_of("^*:, \t\r\n") == std::string::npos) {
    for (const char* name : kNames) {
      fabric::Hca hca;
      hca.name = name;
      require(fabric::selects(*list, hca, fabric::Port{}, {}) == (text == name), "a name is exact", text);
    }
  }
}

void check_values(const std::string& text) {
  const auto version = init::nccl::parse_version(text);
  if (version) require(init::nccl::parse_version(to_string(*version)) == version, "a version reads back", text);
  (void)init::nccl::parse_param(text, -1);
  const auto libraries = init::parse_exports(text);
  if (!libraries) fuzz::require_one_line(libraries.error().message, "the refusal of --export");
}

// RDMA_INIT_RAILS of an image. An accepted text gives entries that NCCL reads as names with a port, rail and plane.
void check_rails(const std::string& text) {
  const auto rails = init::parse_rails(text);
  if (!rails) return;
  require(!rails->empty(), "an accepted text has an HCA", text);
  for (const auto& [name, place] : *rails) {
    const std::string value = "=" + name + ":1" + nccl_suffix(place);
    require(nccl_takes(value, name.c_str(), 1, true), "NCCL takes the HCA with its rail", value);
  }
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const auto version = fuzz::arbitrary_version(data);
  const std::string text = data.ConsumeRemainingBytesAsString();
  check_nccl(text, version);
  check_selectors(text);
  check_values(text);
  check_rails(text);
}
