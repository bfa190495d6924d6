#include "init/providers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "fabric/libraries.hpp"
#include "fabric/provider_abi.hpp"
#include "fabric/provider_names.hpp"

namespace init {
namespace {

using Found = std::optional<fabric::VerbsProvider>;

// Directories of providers in the packages of distributions.
constexpr std::array kUsualDirectories = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu/libibverbs",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu/libibverbs",
#endif
    "/usr/lib64/libibverbs", "/usr/lib/libibverbs"};

// Returns true if libibverbs loads this provider, and only providers that are known to serve other HCAs.
bool is_sole(const fabric::Drivers& drivers, std::string_view name) {
  // Providers of former versions of rdma-core, for other HCAs. libibverbs loads nothing for an empty name.
  constexpr std::array<std::string_view, 4> kOthers = {"", "cxgb3", "i40iw", "nes"};
  const auto is_known = [&](const std::string& driver) {
    return std::ranges::find(kOthers, driver) != kOthers.end() || fabric::is_provider(driver);
  };
  return drivers.unread.empty() && std::ranges::find(drivers.names, name) != drivers.names.end() &&
         std::ranges::all_of(drivers.names, is_known);
}

}  // namespace

Found read_provider(const base::Rooted& files, const std::string& path, std::string_view name) {
  const auto file = files.open(path);
  if (error_of(file) != 0) return std::nullopt;
  const auto range = fabric::read_provider_abi(std::get<base::UniqueFd>(file).get(), name);
  return range ? Found({path, range->min, range->max}) : std::nullopt;
}

// Reads the provider from the first usual directory that has it. A start on a node whose provider fits costs only this.
// Returns nullopt if the directory has the provider for several libibverbs.
Found Providers::read_usual(const std::string& name) const {
  const base::Rooted files(root_);
  const std::string prefix = fmt::format("lib{}-rdmav", name);
  std::string path;
  for (const char* directory : kUsualDirectories) {
    std::size_t count = 0;
    files.each_name(directory, [&](std::string_view file) {
      if (!file.starts_with(prefix) || !file.ends_with(".so")) return;
      ++count;
      path = fmt::format("{}/{}", directory, file);
    });
    if (count > 1) return std::nullopt;
    if (count == 1) return read_provider(files, path, name);
  }
  return std::nullopt;
}

// Reads the provider that libibverbs certainly loads. Returns nullopt if it may load another file with another range.
Found Providers::read_proven(const std::string& name) const {
  const fabric::Libraries libraries(root_);
  const fabric::Verbs verbs = libraries.verbs();
  if (!verbs.abi || verbs.directory.empty() || !is_sole(libraries.drivers(), name)) return std::nullopt;
  std::vector<std::string> places = libraries.places();
  places.insert(places.begin(), verbs.directory);
  Found found;
  for (const std::string& place : places) {
    const std::string path = fmt::format("{}/{}", place, fabric::provider_file(name, *verbs.abi));
    const fabric::ImageFile file = libraries.at(path);
    if (file.path.empty() && file.problem.empty()) continue;
    const Found here = file.problem.empty() ? read_provider(libraries.files(), path, name) : std::nullopt;
    if (!here || (found && (found->min != here->min || found->max != here->max))) return std::nullopt;
    if (!found) found = here;
  }
  return found;
}

void Providers::add_to(fabric::Inventory& inventory) {
  for (fabric::Hca& hca : inventory.hcas) {
    const std::string name = hca.is_accessible() && hca.abi_version ? fabric::provider_of(hca) : "";
    if (name.empty()) continue;
    auto known = std::ranges::find(known_, name, &Known::name);
    if (known == known_.end()) known = known_.insert(known_.end(), {name, read_usual(name)});
    if (known->usual && known->usual->accepts(*hca.abi_version)) {
      hca.provider = known->usual;
      continue;
    }
    if (!known->proven) known->proven = read_proven(name);
    hca.provider = *known->proven;
  }
}

}  // namespace init
