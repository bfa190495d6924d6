// The libraries that the node lends (fabric/lent_libraries.hpp), for an image that cannot open its HCAs itself: it has
// no libibverbs, or no provider that accepts the version of the node's driver.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/selectors.hpp"
#include "init/exports.hpp"

namespace init {

struct Lent {
  Variables env;  // RDMAV_DRIVERS and, if libibverbs itself is lent, LD_LIBRARY_PATH; empty: nothing is used
  std::vector<std::string> hcas;  // the HCAs that lent providers open
  std::string note;               // the libraries that are used, and the reason, in one line
  std::string problem;  // why lent libraries cannot be used, with the remedy, in one line; empty: the image needs none
};

// Decides for the HCAs that open and that --hca may choose. Sets the provider of those HCAs that a lent provider
// serves. An HCA that the image opens, or may open, keeps the image's provider. libibverbs itself is used only if the
// image opens no HCA, because it loads providers of its own private version only. root: prefix of a file tree, empty
// for this machine. chosen: --hca. inventory: Providers::add_to() has set its providers. Costs no system call if the
// image's provider accepts each HCA, and one call if nothing is lent.
Lent borrow(const std::string& root, const std::optional<fabric::SelectorList>& chosen, fabric::Inventory& inventory);

}  // namespace init
