#include "hook/rails/find_uverbs.hpp"

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {

std::optional<NewNode> find_uverbs(int sysfs, const std::string& hca) {
  constexpr std::string_view kPrefix = "uverbs";
  const auto verbs = fabric::sysfs::Directory::open(fmt::format("/proc/self/fd/{}/class/infiniband_verbs", sysfs));
  if (!verbs) return std::nullopt;
  for (const std::string& name : verbs->list()) {
    const auto number = name.starts_with(kPrefix)
                            ? fabric::parse_number<unsigned>(std::string_view(name).substr(kPrefix.size()))
                            : std::nullopt;
    const auto device = number ? verbs->open_at(name.c_str()) : std::nullopt;
    if (!device || device->read_text("ibdev") != hca) continue;
    const auto dev = device->read_text("dev");
    if (dev) return NewNode{hca, *number, *dev};
  }
  return std::nullopt;
}

}  // namespace hook
