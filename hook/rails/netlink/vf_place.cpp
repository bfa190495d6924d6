#include "hook/rails/netlink/vf_place.hpp"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string_view>

#include "fabric/rdma_sysfs.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

// Until the function says true.
bool for_each_name(const std::string& directory, const std::function<bool(const std::string&)>& function) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
  if (!open) return false;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != ".." && function(name)) return true;
  }
  return false;
}

bool leads_to(const std::string& link, std::string_view address) {
  std::array<char, 256> target{};
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length <= 0) return false;
  const std::string_view text(target.data(), static_cast<std::size_t>(length));
  return text.substr(text.rfind('/') + 1) == address;
}

bool is_representor(const std::string& netdev) {
  const auto port = fabric::sysfs::read_file(netdev + "/phys_port_name", 64);
  return fabric::rdma_sysfs::is_representor(fabric::value_or(port, std::string()));
}

}  // namespace

std::optional<VfPlace> find_vf_place(const std::string& sys, const std::string& vf_address,
                                     const std::string& pf_address) {
  const std::string directory = sys + "/bus/pci/devices/" + pf_address;
  VfPlace place;
  const bool is_vf = for_each_name(directory, [&](const std::string& name) {
    constexpr std::string_view kPrefix = "virtfn";
    const auto number = name.starts_with(kPrefix)
                            ? fabric::parse_number<unsigned>(std::string_view(name).substr(kPrefix.size()))
                            : std::nullopt;
    if (!number || !leads_to(directory + "/" + name, vf_address)) return false;
    place.vf = *number;
    return true;
  });
  const std::string netdevs = directory + "/net";
  const bool has_netdev = for_each_name(netdevs, [&](const std::string& name) {
    if (is_representor(netdevs + "/" + name)) return false;
    place.pf = name;
    return true;
  });
  return is_vf && has_netdev ? std::optional(place) : std::nullopt;
}

}  // namespace hook
