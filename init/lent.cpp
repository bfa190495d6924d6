#include "init/lent.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "fabric/elf_file.hpp"
#include "fabric/lent_libraries.hpp"
#include "fabric/libraries.hpp"
#include "fabric/provider_names.hpp"
#include "init/providers.hpp"
#include "init/settings.hpp"

namespace init {
namespace {

using fabric::Hca;

constexpr const char* kVerbs = "libibverbs.so.1";
constexpr const char* kLibc = "libc.so.6";
constexpr const char* kRemedy = "install rdma-core in the image, or base it on a newer distribution";

std::string lent_path(std::string_view name) {
  return fmt::format("{}/{}", fabric::kLentDirectory, name);
}

// Returns false only if the provider certainly rejects the HCA.
bool may_accept(const std::optional<fabric::VerbsProvider>& provider, const Hca& hca) {
  return !provider || !hca.abi_version || provider->accepts(*hca.abi_version);
}

// Returns false only if --hca certainly leaves the HCA out.
bool may_be_used(const std::optional<fabric::SelectorList>& chosen, const Hca& hca) {
  const auto is_of_netdev = [](const fabric::Selector& one) { return one.kind == fabric::Selector::Kind::kNetdev; };
  if (!chosen || std::ranges::any_of(chosen->selectors, is_of_netdev)) return true;
  return std::ranges::any_of(hca.ports,
                             [&](const fabric::Port& port) { return fabric::selects(*chosen, hca, port, {}); });
}

class Borrower {
 public:
  using Names = std::set<std::string>;
  // lent: the files in fabric::kLentDirectory. needed: the files in fabric::kNeededDirectory.
  Borrower(const std::string& root, Names lent, Names needed)
      : image_(root), verbs_(image_.verbs()), lent_(std::move(lent)), needed_(std::move(needed)) {}

  Lent decide(fabric::Inventory& inventory, const std::optional<fabric::SelectorList>& chosen) {
    bool opens_one = false;
    for (Hca& hca : inventory.hcas) {
      if (!hca.is_accessible() || fabric::provider_of(hca).empty()) continue;
      if (is_opened(hca)) {
        opens_one = true;
      } else if (may_be_used(chosen, hca)) {
        unopened_.push_back(&hca);
      }
    }
    if (unopened_.empty()) return {};
    const auto own = image_.verbs_in(lent_path(kVerbs)).abi;
    if (!own) return failed("the node's libibverbs cannot be read");
    abi_ = *own;
    auto served = verbs_.abi == abi_ ? served_by(Use::kProviders) : std::vector<Hca*>();
    if (!served.empty()) return result(served, Use::kProviders);
    // libibverbs loads only providers of its own private version, so another one would not open the image's HCAs.
    if (opens_one) {
      if (why_.empty()) why_ = "the image's libibverbs opens other HCAs and needs providers of another private ABI";
      return failed(why_);
    }
    why_.clear();
    if (!serves_librdmacm()) return failed(why_);
    served = served_by(Use::kWithVerbs);
    if (served.size() == unopened_.size()) return result(served, Use::kWithVerbs);
    const std::string why = why_;
    const bool may_replace = replaces_nothing_newer();
    const auto more = may_replace ? served_by(Use::kAll) : std::vector<Hca*>();
    if (more.size() > served.size()) return result(more, Use::kAll);
    if (!may_replace || !served.empty()) why_ = why;
    return served.empty() ? failed(why_) : result(served, Use::kWithVerbs);
  }

 private:
  // The lent files that the trainer uses: only the providers, also libibverbs, or also the other libraries that
  // libibverbs needs.
  enum class Use { kProviders, kWithVerbs, kAll };

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
      if (file.path.empty() || (file.problem.empty() && may_accept(read_provider(image_.files(), path, name), hca)))
        return true;
    }
    return false;
  }

  // Returns the unopened HCAs that lent providers certainly serve in this image. If there are none, sets why_.
  std::vector<Hca*> served_by(Use use) {
    use_ = use;
    fit_.clear();
    why_.clear();
    std::vector<Hca*> served;
    if (use != Use::kProviders && !add(kVerbs)) return served;
    for (Hca* hca : unopened_)
      if (serves(*hca)) served.push_back(hca);
    return served;
  }

  bool serves(const Hca& hca) {
    const std::string name = fabric::provider_of(hca);
    const std::string file = fabric::provider_file(name, abi_);
    if (!lent_.contains(file)) return because("the node lends no provider {}", file);
    const auto provider = read_provider(image_.files(), lent_path(file), name);
    if (!provider) return because("the versions that the node's {} accepts cannot be read", file);
    if (!may_accept(provider, hca)) {
      return because("the node's {} accepts versions {} to {} of the kernel's ABI, and {} has {}", file, provider->min,
                     provider->max, base::printable(hca.name), *hca.abi_version);
    }
    return add(file);
  }

  // Programs with the image's librdmacm do not start if librdmacm needs a newer libibverbs than the lent one.
  bool serves_librdmacm() {
    const fabric::ImageFile library = image_.find({"librdmacm.so.1"});
    if (library.path.empty()) return true;
    const auto versions = versions_of(lent_path(kVerbs));
    for (const auto& need : read(library.path, [](fabric::ElfFile& file) { return file.needed_versions(); })) {
      if (need.library == kVerbs && !versions.contains(need.version))
        return because("{} of the image needs {} of libibverbs, which the node's lacks", base::printable(library.path),
                       base::printable(need.version));
    }
    return true;
  }

  // LD_LIBRARY_PATH makes all programs use the lent library, so it must have each version that the image's own library
  // has.
  bool replaces_nothing_newer() const {
    return std::ranges::all_of(needed_, [&](const std::string& name) {
      const fabric::ImageFile own = image_.find({name.c_str()});
      const Names former = own.problem.empty() ? versions_of(own.path) : Names();
      return std::ranges::includes(versions_of(path_of(name)), former);
    });
  }

  // Checks a lent file and those that it needs: the image must have all other libraries, versions and symbols.
  bool add(const std::string& name) {
    const auto [known, is_new] = fit_.try_emplace(name, true);
    if (is_new) known->second = check(name);
    return fit_.at(name);
  }

  bool check(const std::string& name) {
    const fabric::ImageFile lent = image_.at(path_of(name));
    if (lent.path.empty() || !lent.problem.empty())
      return because("the node's {} {}", base::printable(name), lent.path.empty() ? "cannot be read" : lent.problem);
    const auto opened = image_.files().open(lent.path);
    if (error_of(opened) != 0) return because("the node's {} cannot be read", base::printable(name));
    fabric::ElfFile file(std::get<base::UniqueFd>(opened).get());
    // The loader takes other libraries from the image.
    const auto is_lent = [&](const std::string& library) {
      return (use_ != Use::kProviders && lent_.contains(library)) || (use_ == Use::kAll && needed_.contains(library));
    };
    for (const auto& need : file.needed_versions()) {
      if (!is_lent(need.library) && !has(need))
        return because("the node's {} needs {} of {}, which this image lacks{}", base::printable(name),
                       base::printable(need.version), base::printable(need.library), kind_of_image());
    }
    for (const std::string& needed : file.needed()) {
      if (is_lent(needed) ? !add(needed) : !is_in_image(needed))
        return is_lent(needed) ? false
                               : because("the node's {} needs {}, which this image lacks{}", base::printable(name),
                                         base::printable(needed), kind_of_image());
    }
    return use_ != Use::kProviders || has_symbols(name, file);
  }

  // The private version of libibverbs stays the same while its symbols change from release to release.
  bool has_symbols(const std::string& name, fabric::ElfFile& file) {
    const auto defined = read(verbs_.file.path, [](fabric::ElfFile& verbs) { return verbs.symbols(); });
    for (const std::string& symbol : file.symbols_of(kVerbs)) {
      if (!defined.contains(symbol))
        return because("the node's {} needs the symbol {}, which the image's libibverbs lacks", base::printable(name),
                       base::printable(symbol));
    }
    return true;
  }

  // Returns what `part` reads of the library at the path; an empty value if the library cannot be opened.
  template <typename Part>
  auto read(const std::string& path, Part part) const -> decltype(part(std::declval<fabric::ElfFile&>())) {
    const auto opened = image_.files().open(path);
    if (path.empty() || error_of(opened) != 0) return {};
    fabric::ElfFile file(std::get<base::UniqueFd>(opened).get());
    return part(file);
  }

  std::set<std::string> versions_of(const std::string& path) const {
    const auto versions = read(path, [](fabric::ElfFile& file) { return file.versions(); });
    return {versions.begin(), versions.end()};
  }

  bool has(const fabric::ElfFile::Need& need) {
    auto known = versions_.find(need.library);
    if (known == versions_.end()) {
      const fabric::ImageFile library = image_.find({need.library.c_str()});
      const std::string path = library.problem.empty() ? library.path : "";
      known = versions_.emplace(need.library, versions_of(path)).first;
    }
    return known->second.contains(need.version);
  }

  bool is_in_image(const std::string& name) const {
    const fabric::ImageFile library = image_.find({name.c_str()});
    return !library.path.empty() && library.problem.empty();
  }

  std::string kind_of_image() const {
    if (!image_.find({"libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1", "ld-musl-x86_64.so.1", "ld-musl-aarch64.so.1"})
             .path.empty())
      return " (its C library is musl)";
    return image_.find({kLibc}).path.empty() ? " (it has no glibc)" : "";
  }

  template <typename... Args>
  bool because(fmt::format_string<Args...> format, Args&&... args) {
    if (why_.empty()) why_ = fmt::format(format, std::forward<Args>(args)...);  // keeps the first reason

    return false;
  }

  // Returns the names of the unopened HCAs that are not served.
  std::string rest_of(const std::vector<Hca*>& served) const {
    std::vector<std::string> names;
    for (Hca* hca : unopened_)
      if (std::ranges::find(served, hca) == served.end()) names.push_back(base::printable(hca->name));
    return base::join(names, ", ");
  }

  static std::string problem_of(const std::string& hcas, const std::string& why) {
    return fmt::format("the image's libraries do not open {}, and {}; remedy: {}", hcas, why, kRemedy);
  }

  Lent failed(const std::string& why) const { return {{}, {}, {}, problem_of(rest_of({}), why)}; }

  // Returns the path of a lent file.
  std::string path_of(const std::string& name) const {
    return needed_.contains(name) ? fmt::format("{}/{}", fabric::kNeededDirectory, name) : lent_path(name);
  }

  Lent result(const std::vector<Hca*>& hcas, Use use) const {
    Lent lent;
    std::vector<std::string> providers;
    for (Hca* hca : hcas) {
      lent.hcas.push_back(hca->name);
      const std::string name = fabric::provider_of(*hca);
      if (std::ranges::find(providers, name) == providers.end()) providers.push_back(name);
      const std::string path = lent_path(fabric::provider_file(name, abi_));
      if (auto provider = read_provider(image_.files(), path, name)) hca->provider = std::move(provider);
    }
    // RDMAV_DRIVERS replaces IBV_DRIVERS. A name in it with a slash is a path without the ending "-rdmavNN.so".
    std::string drivers = own_variable("RDMAV_DRIVERS");
    if (drivers.empty()) drivers = own_variable("IBV_DRIVERS");
    for (const std::string& name : providers) {
      const std::string path = lent_path("lib" + name);
      const auto listed = base::split(drivers, ':');
      if (std::ranges::find(listed, path) == listed.end()) drivers += (drivers.empty() ? "" : ":") + path;
    }
    lent.env.emplace_back("RDMAV_DRIVERS", drivers);
    if (use != Use::kProviders) {
      std::string path = fabric::kLentDirectory;
      if (use == Use::kAll && !needed_.empty()) path += std::string(":") + fabric::kNeededDirectory;
      const std::string others = own_variable("LD_LIBRARY_PATH");
      const bool is_first = (others + ":").starts_with(path + ":");  // an earlier run of rdma-init set it
      lent.env.emplace_back("LD_LIBRARY_PATH", is_first         ? others
                                               : others.empty() ? path
                                                                : fmt::format("{}:{}", path, others));
    }
    lent.note = fmt::format("uses the node's {}{}, because the image's libraries do not open {}",
                            use == Use::kProviders ? "" : "libibverbs with ", base::join(providers, ", "),
                            base::join(lent.hcas, ", "));
    if (const std::string rest = rest_of(hcas); !rest.empty()) lent.problem = problem_of(rest, why_);
    return lent;
  }

  fabric::Libraries image_;
  fabric::Verbs verbs_;
  Names lent_;
  Names needed_;
  Use use_ = Use::kProviders;  // the use that is checked now
  unsigned abi_ = 0;           // private ABI of the lent libibverbs
  std::vector<Hca*> unopened_;
  std::map<std::string, bool> fit_;                        // whether a file fits (check()), by path
  std::map<std::string, std::set<std::string>> versions_;  // the symbol versions of the image's libraries, by path
  std::string why_;
};

}  // namespace

Lent borrow(const std::string& root, const std::optional<fabric::SelectorList>& chosen, fabric::Inventory& inventory) {
  const bool may_need = std::ranges::any_of(inventory.hcas, [](const Hca& hca) {
    const bool is_accepted = hca.provider && !hca.is_rejected();
    return hca.is_accessible() && !is_accepted && !fabric::provider_of(hca).empty();
  });
  std::set<std::string> lent;
  std::set<std::string> needed;
  const base::Rooted files(root);
  if (may_need) files.each_name(fabric::kLentDirectory, [&](std::string_view name) { lent.emplace(name); });
  if (lent.empty()) return {};
  files.each_name(fabric::kNeededDirectory, [&](std::string_view name) { needed.emplace(name); });
  return Borrower(root, std::move(lent), std::move(needed)).decide(inventory, chosen);
}

}  // namespace init
