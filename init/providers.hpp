// Finds the provider with which libibverbs opens an HCA, and the versions of the kernel's ABI that it accepts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rooted.hpp"
#include "fabric/inventory.hpp"

namespace init {

// Returns the provider `name` in the file, with its range; nullopt if the file cannot be opened or its range is
// unknown.
std::optional<fabric::VerbsProvider> read_provider(const base::Rooted& files, const std::string& path,
                                                   std::string_view name);

// The providers of one image. A file is read once, however often a wait reads the inventory.
class Providers {
 public:
  // root: prefix of a file tree, empty for this machine.
  explicit Providers(std::string root) : root_(std::move(root)) {}

  // Sets `provider` of each HCA that opens and has a known driver and ABI version. Reads nothing for other HCAs. A
  // provider that rejects its HCA is set only if libibverbs certainly loads it, and no other provider that could accept
  // the HCA.
  void add_to(fabric::Inventory& inventory);

 private:
  using Found = std::optional<fabric::VerbsProvider>;
  struct Known {
    std::string name;
    Found usual;
    std::optional<Found> proven = {};  // nullopt: the provider's file was not read yet
  };

  Found read_usual(const std::string& name) const;
  Found read_proven(const std::string& name) const;

  std::string root_;
  std::vector<Known> known_;
};

}  // namespace init
