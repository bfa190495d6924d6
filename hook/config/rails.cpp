// Reads "rails": the order of rails and planes.
#include <set>

#include "hook/config/reader.hpp"
#include "hook/config/values.hpp"

namespace hook {
namespace {

// NCCL 2.30.7 (src/transport/net_ib/init.cc, NCCL_IB_PLANE_MAX_INDEX) counts 13 planes; one is of HCAs without a plane.
constexpr std::size_t kMostPlanes = 12;

std::optional<fabric::Selector> rail_selector(const std::string& text) {
  auto selector = fabric::parse_rail_selector(text);
  if (!selector) return std::nullopt;
  const bool is_name = selector->kind == fabric::Selector::Kind::kName && text.find('*') == std::string::npos;
  return is_name && !is_config_name(text) ? std::nullopt : std::optional(*std::move(selector));
}

}  // namespace

void read_rails(ConfigReader& reader, const ConfigValue& value, std::vector<RailEntry>& rails) {
  rails.clear();
  std::set<std::string> known;
  unsigned rail = 0;
  const auto read = [&](const ConfigValue& entry, std::optional<unsigned> plane) {
    const auto selector =
        reader.parsed(entry, rail_selector, "selects no HCA",
                      "write a name as `rdma link` prints it, \"pci:ADDRESS\", \"guid:GUID\" or \"pf:NAME\"");
    if (!selector) return;
    const auto& text = entry.json().get_ref<const std::string&>();
    if (known.insert(text).second) {
      rails.push_back({text, *selector, rail, plane});
    } else {
      reader.error(entry, fmt::format("duplicate entry `{}`", shown(text)), "remove one of them");
    }
  };
  for (const ConfigValue& element : reader.elements(value)) {
    if (!element.json().is_array()) {
      read(element, std::nullopt);
      ++rail;
      continue;
    }
    const auto planes = reader.elements(element);
    if (planes.empty() || planes.size() > kMostPlanes)
      reader.error(element, fmt::format("has {} planes", planes.size()),
                   fmt::format("write 1 to {} entries, one for each plane of the rail", kMostPlanes));
    for (unsigned plane = 0; plane < planes.size(); ++plane)
      read(planes[plane], plane);
    ++rail;
  }
}

}  // namespace hook
