#include "init/image.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/text.hpp"
#include "fabric/provider_names.hpp"
#include "init/providers.hpp"

namespace init {
namespace {

// Commands that install libibverbs and its providers, by ID or ID_LIKE in os-release.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPackages = {
    {{"debian", "apt-get install libibverbs1 ibverbs-providers"},
     {"ubuntu", "apt-get install libibverbs1 ibverbs-providers"},
     {"rhel", "dnf install libibverbs"},
     {"fedora", "dnf install libibverbs"},
     {"suse", "zypper install libibverbs1 libibverbs"},
     {"alpine", "apk add rdma-core"}}};

// Returns the remedy for missing or mixed libraries. NVIDIA's images have a libibverbs of their own, so adding only the
// missing package could mix two sources.
std::string how_to_install(const Image& image) {
  if (image.ngc) {
    return "the image is made from NVIDIA's: install both packages from one source (apt-get install --reinstall "
           "libibverbs1 ibverbs-providers), or start from an image that has them";
  }
  for (const std::string& id : image.distributions) {
    for (const auto& [distribution, command] : kPackages) {
      if (id == distribution) return fmt::format("add to the image: {}", command);
    }
  }
  return "add libibverbs and its providers to the image: libibverbs1 and ibverbs-providers (Debian, Ubuntu), "
         "libibverbs (RHEL)";
}

// A provider that the image needs, with its HCAs.
struct Need {
  std::string provider;
  std::vector<std::string> hcas;
  bool used = false;  // the decision uses one of the HCAs
};

std::vector<Need> needs_of(const fabric::Inventory& inventory, const Decision& decision, const Lent& lent) {
  std::vector<Need> needs;
  for (const fabric::Hca& hca : inventory.hcas) {
    // Skips rejected providers, which check_providers() reports.
    if (!hca.is_accessible() || hca.is_rejected() || std::ranges::find(lent.hcas, hca.name) != lent.hcas.end())
      continue;
    const std::string provider = fabric::provider_of(hca);
    auto need = std::ranges::find(needs, provider, &Need::provider);
    if (need == needs.end()) need = needs.insert(needs.end(), Need{provider, {}});
    need->hcas.push_back(hca.name);
    need->used |= (decision.efa && hca.is_efa()) ||
                  decision.uses([&](const PortReport& port) { return port.device == hca.name; });
  }
  return needs;
}

// Checks one provider. Returns nullopt if libibverbs will load it. The check is bad only for HCAs that the decision
// uses.
std::optional<Check> check_provider(const Need& need, const Image& image) {
  const std::string hcas = printable(base::join(need.hcas, ", "));
  const auto finding = [&](std::string message, std::string remedy) {
    return Check{"provider", need.used ? Verdict::kBad : Verdict::kNote,
                 fmt::format("{}: libibverbs will not find {}", message, hcas), std::move(remedy)};
  };
  // Looks for a provider with another ABI only if none with the right ABI exists.
  const Provider* other = nullptr;
  for (const Provider& provider : image.providers) {
    if (provider.driver != need.provider) continue;
    if (provider.abi != image.abi) {
      other = &provider;
      continue;
    }
    if (!provider.file.problem.empty())
      return finding(fmt::format("{} {}", printable(provider.file.path), provider.file.problem), how_to_install(image));
    if (std::ranges::find(image.drivers, need.provider) != image.drivers.end()) return std::nullopt;
    if (!image.unread.empty()) break;
    return finding(fmt::format("{} exists, but no file in /etc/libibverbs.d has the line `driver {}`",
                               printable(provider.file.path), need.provider),
                   how_to_install(image));
  }
  if (!image.unread.empty()) {
    return Check{"provider", Verdict::kNote,
                 fmt::format("whether libibverbs has the provider {} of {} is not known: {}", need.provider, hcas,
                             printable(image.unread))};
  }
  if (other) {
    return finding(fmt::format("{} has the private ABI {}, but {} needs {}", printable(other->file.path), other->abi,
                               printable(image.verbs.path), *image.abi),
                   "install both from one source; " + how_to_install(image));
  }
  return finding("the image has no " + fabric::provider_file(need.provider, *image.abi), how_to_install(image));
}

// Returns the check for a missing or broken libibverbs. missing: the verdict if it is missing.
Check without_verbs(const Image& image, Verdict missing) {
  // A directory that cannot be read may have the library.
  const bool unknown = image.verbs.path.empty() && !image.verbs.problem.empty();
  if (!unknown && image.is_static)
    return {"libibverbs", Verdict::kNote, "the image has no libibverbs.so.1, and no C library that could load it"};
  if (unknown)
    return {"libibverbs", Verdict::kNote,
            fmt::format("whether the image has libibverbs.so.1 is not known: {}", printable(image.verbs.problem))};
  return {"libibverbs", missing,
          image.verbs.path.empty() ? "the image has no libibverbs.so.1: NCCL, UCX and MPI will find no HCA"
                                   : fmt::format("{} {}: NCCL, UCX and MPI will find no HCA",
                                                 printable(image.verbs.path), image.verbs.problem),
          how_to_install(image)};
}

std::vector<Check> check_verbs(const std::vector<Need>& needs, const Image& image) {
  std::vector<Check> checks;
  const bool used = std::ranges::any_of(needs, &Need::used);
  const Verdict missing = used ? Verdict::kBad : Verdict::kNote;
  if (image.verbs.path.empty() || !image.verbs.problem.empty()) {
    return {without_verbs(image, missing)};
  }
  if (!image.abi) {
    return {{"libibverbs", Verdict::kNote,
             fmt::format("{} does not contain the private ABI of its providers", printable(image.verbs.path))}};
  }
  if (!image.abi_version) {
    checks.push_back({"abi_version", missing,
                      "/sys/class/infiniband_verbs/abi_version is missing: libibverbs finds no device without it",
                      "mount all of /sys/class/infiniband_verbs into the container (rdma-hook's view has the file)"});
  }
  std::vector<std::string> found;
  for (const Need& need : needs) {
    // An HCA of an unknown driver is no finding, because its provider is unknown.
    if (need.provider.empty()) continue;
    if (auto check = check_provider(need, image)) {
      checks.push_back(std::move(*check));
    } else {
      found.push_back(need.provider);
    }
  }
  if (!found.empty()) {
    checks.push_back({"provider", Verdict::kGood,
                      fmt::format("{} has the provider{} {} (private ABI {})", printable(image.verbs.path),
                                  found.size() == 1 ? "" : "s", base::join(found, ", "), *image.abi)});
  }
  return checks;
}

// Checks the libraries with which NCCL uses EFA.
std::vector<Check> check_efa(const Image& image) {
  std::vector<Check> checks;
  const auto look = [&](const char* name, const fabric::ImageFile& file, const char* what) {
    if (!file.path.empty() && file.problem.empty()) return;
    const bool unknown = file.path.empty() && !file.problem.empty();
    checks.push_back({"efa", unknown ? Verdict::kNote : Verdict::kBad,
                      unknown ? fmt::format("whether the image has {} is not known: {}", name, printable(file.problem))
                      : file.path.empty()
                          ? fmt::format("the image has no {} ({}): NCCL cannot use EFA and uses TCP", name, what)
                          : fmt::format("{} {}: NCCL cannot use EFA and uses TCP", printable(file.path), file.problem),
                      unknown ? ""
                              : "add AWS' EFA installer to the image (it has libfabric and aws-ofi-nccl), with its "
                                "libraries in the library path"});
  };
  look("libfabric.so.1", image.fabric, "libfabric");
  look("libnccl-net.so", image.nccl_plugin, "aws-ofi-nccl");
  if (checks.empty()) {
    checks.push_back({"efa", Verdict::kGood,
                      fmt::format("{} and {} exist: NCCL can use EFA", printable(image.fabric.path),
                                  printable(image.nccl_plugin.path))});
  }
  return checks;
}

// Checks libraries above verbs that find no HCA without an error.
void check_users_of_verbs(const Image& image, std::vector<Check>& checks) {
  if (!image.ucx_without_verbs.empty()) {
    checks.push_back({"ucx", Verdict::kSlow,
                      fmt::format("{} has modules of UCX, but no libuct_ib.so: this UCX uses no HCA, and reports no "
                                  "error",
                                  printable(image.ucx_without_verbs)),
                      "add a UCX that is built with verbs, such as libucx0 of Debian 13, to the image"});
  }
  if (image.lacks_localhost) {
    checks.push_back({"libfabric", Verdict::kSlow,
                      fmt::format("`localhost` does not resolve here: {} reports no verbs;ofi_rxm, without an error",
                                  printable(image.fabric.path)),
                      "add the line `127.0.0.1 localhost` to /etc/hosts"});
  }
}

}  // namespace

std::vector<Check> check_image(const fabric::Inventory& inventory, const Decision& decision, const Image& image,
                               const Lent& lent) {
  const auto needs = needs_of(inventory, decision, lent);
  if (needs.empty()) return {};
  auto checks = check_verbs(needs, image);
  if (decision.efa) std::ranges::move(check_efa(image), std::back_inserter(checks));
  if (!decision.efa) check_users_of_verbs(image, checks);
  return checks;
}

}  // namespace init
