#include "init/lent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "fabric/elf_file.hpp"
#include "fabric/lent_libraries.hpp"
#include "fabric/libraries.hpp"
#include "fabric/provider_abi.hpp"
#include "fabric/provider_names.hpp"
#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::Hca;

constexpr const char* kVerbs = "libibverbs.so.1";
constexpr const char* kLibc = "libc.so.6";
constexpr const char* kRemedy = "install rdma-core in the image, or base it on a newer distribution";

std::string lent_path(std::string_view name) {
  return fmt::format("{}/{}", fabric::kLentDirectory, name);
}

// Returns the range of a provider's file, nullopt if it is unknown.
std::optional<fabric::AbiRange> range_of(const fabric::Rooted& files, const std::string& path, std::string_view name) {
  const auto file = files.open(path);
  if (error_of(file) != 0) return std::nullopt;
  return fabric::read_provider_abi(std::get<fabric::UniqueFd>(file).get(), name);
}

bool accepts(const std::optional<fabric::AbiRange>& range, const Hca& hca) {
  return !range || !hca.abi_version || (*hca.abi_version >= range->min && *hca.abi_version <= range->max);
}

class Borrower {
 public:
  Borrower(const std::string& root, std::set<std::string> lent)
      : live_(root.empty()), image_(root), verbs_(image_.verbs()), lent_(std::move(lent)) {}

  Lent decide(fabric::Inventory& inventory) {
    std::vector<Hca*> unopened;
    std::vector<Hca*> all;
    for (Hca& hca : inventory.hcas) {
      if (!hca.is_accessible() || fabric::provider_of(hca).empty()) continue;
      all.push_back(&hca);
      if (!is_opened(hca)) unopened.push_back(&hca);
    }
    if (unopened.empty()) return {};
    const auto own = image_.verbs_in(lent_path(kVerbs)).abi;
    if (!own) return failed("the node's libibverbs cannot be read");
    abi_ = *own;
    if (verbs_.abi == abi_ && use(unopened, false)) return result(unopened, false);
    // libibverbs loads only providers of its own private version, so those of the other HCAs are lent too.
    return use(all, true) ? result(all, true) : failed(why_);
  }

 private:
  // Returns false only if the image's libraries certainly do not open the HCA.
  bool is_opened(const Hca& hca) const {
    if (verbs_.file.path.empty()) return !verbs_.file.problem.empty();
    if (!verbs_.file.problem.empty()) return false;
    if (hca.is_rejected()) return false;
    if (hca.provider || !verbs_.abi) return true;
    const std::string name = fabric::provider_of(hca);
    std::vector<std::string> places = image_.places();
    places.insert(places.begin(), verbs_.directory);
    for (const std::string& place : places) {
      const std::string path = fmt::format("{}/{}", place, fabric::provider_file(name, *verbs_.abi));
      const fabric::ImageFile file = image_.at(path);
      if (file.path.empty() && file.problem.empty()) continue;
      if (file.path.empty() || (file.problem.empty() && accepts(range_of(image_.files(), path, name), hca)))
        return true;
    }
    return false;
  }

  // Checks whether lent providers can serve the HCAs in this image. If not, sets why_.
  bool use(const std::vector<Hca*>& hcas, bool with_verbs) {
    used_.clear();
    if (with_verbs && !add(kVerbs, with_verbs)) return false;
    for (const Hca* hca : hcas) {
      const std::string name = fabric::provider_of(*hca);
      const std::string file = fabric::provider_file(name, abi_);
      if (!lent_.contains(file)) return because("the node lends no provider {}", file);
      const auto range = range_of(image_.files(), lent_path(file), name);
      if (!accepts(range, *hca)) {
        return because("the node's {} accepts versions {} to {} of the kernel's ABI, and {} has {}", file, range->min,
                       range->max, fabric::printable(hca->name), *hca->abi_version);
      }
      if (!add(file, with_verbs)) return false;
    }
    return true;
  }

  // Adds a lent file and those that it needs, and checks that the image has all versions of symbols that it needs.
  bool add(const std::string& name, bool with_verbs) {
    if (!used_.insert(name).second) return true;
    const auto opened = image_.files().open(lent_path(name));
    if (error_of(opened) != 0) return because("the node's {} cannot be read", fabric::printable(name));
    fabric::ElfFile file(std::get<fabric::UniqueFd>(opened).get());
    // Without LD_LIBRARY_PATH the loader takes what the provider needs from the image.
    const auto is_lent = [&](const std::string& library) { return with_verbs && lent_.contains(library); };
    for (const std::string& needed : file.needed())
      if (is_lent(needed) && !add(needed, with_verbs)) return false;
    for (const auto& need : file.needed_versions()) {
      if (is_lent(need.library)) continue;
      if (!has(need))
        return because("the node's {} needs {} of {}, which this image lacks{}", fabric::printable(name),
                       fabric::printable(need.version), fabric::printable(need.library), kind_of_image());
    }
    return true;
  }

  bool has(const fabric::ElfFile::Need& need) {
    auto known = versions_.find(need.library);
    if (known == versions_.end()) {
      known = versions_.emplace(need.library, std::set<std::string>()).first;
      const fabric::ImageFile library = image_.find({need.library.c_str()});
      const auto opened = image_.files().open(library.path);
      if (!library.path.empty() && error_of(opened) == 0) {
        const auto versions = fabric::ElfFile(std::get<fabric::UniqueFd>(opened).get()).versions();
        known->second.insert(versions.begin(), versions.end());
      }
    }
    return known->second.contains(need.version);
  }

  std::string kind_of_image() const {
    if (!image_.find({"libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1", "ld-musl-x86_64.so.1", "ld-musl-aarch64.so.1"})
             .path.empty())
      return " (its C library is musl)";
    return image_.find({kLibc}).path.empty() ? " (it has no glibc)" : "";
  }

  template <typename... Args>
  bool because(fmt::format_string<Args...> format, Args&&... args) {
    why_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  Lent failed(const std::string& why) const {
    return {{}, {}, {}, fmt::format("the image's libibverbs opens no HCA, and {}; remedy: {}", why, kRemedy)};
  }

  std::string variable(const char* name) const {
    const char* value = live_ ? std::getenv(name) : nullptr;
    return value ? value : "";
  }

  Lent result(const std::vector<Hca*>& hcas, bool with_verbs) const {
    Lent lent;
    std::vector<std::string> providers;
    for (Hca* hca : hcas) {
      lent.hcas.push_back(hca->name);
      const std::string name = fabric::provider_of(*hca);
      if (std::ranges::find(providers, name) == providers.end()) providers.push_back(name);
      const std::string path = lent_path(fabric::provider_file(name, abi_));
      const auto range = range_of(image_.files(), path, name);
      hca->provider = range ? std::optional(fabric::VerbsProvider{path, range->min, range->max}) : std::nullopt;
    }
    // RDMAV_DRIVERS replaces IBV_DRIVERS. A name in it with a slash is a path without the ending "-rdmavNN.so".
    std::string drivers = variable("RDMAV_DRIVERS");
    if (drivers.empty()) drivers = variable("IBV_DRIVERS");
    for (const std::string& name : providers) {
      const std::string path = lent_path("lib" + name);
      const auto listed = fabric::split(drivers, ':');
      if (std::ranges::find(listed, path) == listed.end()) drivers += (drivers.empty() ? "" : ":") + path;
    }
    lent.env.emplace_back("RDMAV_DRIVERS", drivers);
    if (with_verbs) {
      const std::string others = variable("LD_LIBRARY_PATH");
      const auto listed = fabric::split(others, ':');
      const bool is_first = listed.front() == fabric::kLentDirectory;  // a run of rdma-init before this one
      lent.env.emplace_back("LD_LIBRARY_PATH", is_first         ? others
                                               : others.empty() ? fabric::kLentDirectory
                                                                : fmt::format("{}:{}", fabric::kLentDirectory, others));
    }
    lent.note = fmt::format("uses the node's {}{}, because the image's libraries do not open {}",
                            with_verbs ? "libibverbs with " : "", fabric::join(providers, ", "),
                            fabric::printable(hcas.front()->name));
    return lent;
  }

  bool live_;
  fabric::Libraries image_;
  fabric::Verbs verbs_;
  std::set<std::string> lent_;  // names of the files
  unsigned abi_ = 0;            // private ABI of the lent libibverbs
  std::set<std::string> used_;
  std::map<std::string, std::set<std::string>> versions_;  // of the image's libraries
  std::string why_;
};

}  // namespace

Lent borrow(const std::string& root, fabric::Inventory& inventory) {
  const bool may_need = std::ranges::any_of(inventory.hcas, [](const Hca& hca) {
    const bool is_accepted = hca.provider && !hca.is_rejected();
    return hca.is_accessible() && !is_accepted && !fabric::provider_of(hca).empty();
  });
  std::set<std::string> lent;
  if (may_need)
    fabric::Rooted(root).each_name(fabric::kLentDirectory, [&](std::string_view name) { lent.emplace(name); });
  return lent.empty() ? Lent() : Borrower(root, std::move(lent)).decide(inventory);
}

}  // namespace init
