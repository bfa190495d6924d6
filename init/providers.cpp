#include "init/providers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "init/libraries.hpp"
#include "init/provider_abi.hpp"

namespace init {
namespace {

using Found = std::optional<fabric::VerbsProvider>;

// Providers by kernel driver (rdma-core 59, providers/).
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kProviders = {
    {{"mlx5_core", "mlx5"}, {"mlx4_core", "mlx4"},    {"bnxt_en", "bnxt_re"}, {"ice", "irdma"},
     {"i40e", "irdma"},     {"idpf", "irdma"},        {"qede", "qedr"},       {"hns3", "hns"},
     {"hfi1", "hfi1verbs"}, {"ib_qib", "ipathverbs"}, {"ib_mthca", "mthca"},  {"be2net", "ocrdma"},
     {"rdma_rxe", "rxe"},   {"cxgb4", "cxgb4"},       {"efa", "efa"},         {"siw", "siw"},
     {"mana", "mana"},      {"erdma", "erdma"},       {"ionic", "ionic"},     {"vmw_pvrdma", "vmw_pvrdma"}}};

// Directories of providers in the packages of distributions.
constexpr std::array kUsualDirectories = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu/libibverbs",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu/libibverbs",
#endif
    "/usr/lib64/libibverbs", "/usr/lib/libibverbs"};

bool accepts(const Found& provider, unsigned version) {
  return provider && version >= provider->min && version <= provider->max;
}

// Returns nullopt if the file cannot be opened, or its range is not known.
Found read_provider(const Rooted& files, const std::string& path, std::string_view name) {
  const auto file = files.open(path);
  if (error_of(file) != 0) return std::nullopt;
  const auto range = read_provider_abi(std::get<fabric::UniqueFd>(file).get(), name);
  return range ? Found({path, range->min, range->max}) : std::nullopt;
}

// Returns true if libibverbs loads this provider, and only providers that are known to serve other HCAs.
bool is_sole(const Drivers& drivers, std::string_view name) {
  // Providers of former versions of rdma-core, for other HCAs. libibverbs loads nothing for an empty name.
  constexpr std::array<std::string_view, 4> kOthers = {"", "cxgb3", "i40iw", "nes"};
  const auto is_known = [&](const std::string& driver) {
    return std::ranges::find(kOthers, driver) != kOthers.end() ||
           std::ranges::find(kProviders, driver, &decltype(kProviders)::value_type::second) != kProviders.end();
  };
  return drivers.unread.empty() && std::ranges::find(drivers.names, name) != drivers.names.end() &&
         std::ranges::all_of(drivers.names, is_known);
}

}  // namespace

std::string provider_of(const fabric::Hca& hca) {
  if (hca.is_efa()) return "efa";
  const auto known = std::ranges::find(kProviders, hca.driver.value_or(""), &decltype(kProviders)::value_type::first);
  return known == kProviders.end() ? std::string() : std::string(known->second);
}

// Reads the provider from the first usual directory that has it. A start on a node whose provider fits costs only this.
// Returns nullopt if the directory has the provider for several libibverbs.
Found Providers::read_usual(const std::string& name) const {
  const Rooted files(root_);
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
  const Libraries libraries(root_);
  const Verbs verbs = libraries.verbs();
  if (!verbs.abi || verbs.directory.empty() || !is_sole(libraries.drivers(), name)) return std::nullopt;
  std::vector<std::string> places = libraries.places();
  places.insert(places.begin(), verbs.directory);
  Found found;
  for (const std::string& place : places) {
    const std::string path = fmt::format("{}/{}", place, provider_file(name, *verbs.abi));
    const ImageFile file = libraries.at(path);
    if (file.path.empty() && file.problem.empty()) continue;
    const Found here = file.problem.empty() ? read_provider(libraries.files(), path, name) : std::nullopt;
    if (!here || (found && (found->min != here->min || found->max != here->max))) return std::nullopt;
    if (!found) found = here;
  }
  return found;
}

void Providers::add_to(fabric::Inventory& inventory) {
  for (fabric::Hca& hca : inventory.hcas) {
    const std::string name = hca.is_accessible() && hca.abi_version ? provider_of(hca) : "";
    if (name.empty()) continue;
    auto known = std::ranges::find(known_, name, &Known::name);
    if (known == known_.end()) known = known_.insert(known_.end(), {name, read_usual(name)});
    if (accepts(known->usual, *hca.abi_version)) {
      hca.provider = known->usual;
      continue;
    }
    if (!known->proven) known->proven = read_proven(name);
    hca.provider = *known->proven;
  }
}

}  // namespace init
