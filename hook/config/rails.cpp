// Reads "rails": the order of rails and planes.
#include <set>

#include "base/text.hpp"
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

class RailReader {
 public:
  RailReader(ConfigReader& reader, std::vector<RailEntry>& rails) : reader_(reader), rails_(rails) {}

  void read(const ConfigValue& value, unsigned rail, std::optional<unsigned> plane) {
    const auto selector =
        reader_.parsed(value, rail_selector, "selects no HCA",
                       "write a name as `rdma link` prints it, \"pci:ADDRESS\", \"guid:GUID\" or \"pf:NAME\"");
    if (!selector) return;
    const auto& text = value.json().get_ref<const std::string&>();
    if (!known_.insert(text).second) {
      reader_.error(value, fmt::format("duplicate entry `{}`", shown(text)), "remove one of them");
      return;
    }
    rails_.push_back({text, *selector, rail, plane});
  }

 private:
  ConfigReader& reader_;
  std::vector<RailEntry>& rails_;
  std::set<std::string> known_;
};

}  // namespace

void read_rails(ConfigReader& reader, const ConfigValue& value, std::vector<RailEntry>& rails) {
  rails.clear();
  RailReader entries(reader, rails);
  unsigned rail = 0;
  for (const ConfigValue& element : reader.elements(value)) {
    if (!element.json().is_array()) {
      entries.read(element, rail++, std::nullopt);
      continue;
    }
    const auto planes = reader.elements(element);
    if (planes.empty() || planes.size() > kMostPlanes)
      reader.error(element, fmt::format("has {} planes", planes.size()),
                   fmt::format("write 1 to {} entries, one for each plane of the rail", kMostPlanes));
    for (unsigned plane = 0; plane < planes.size(); ++plane)
      entries.read(planes[plane], rail, plane);
    ++rail;
  }
}

}  // namespace hook
