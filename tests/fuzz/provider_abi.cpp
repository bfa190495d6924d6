// Any bytes as the file of a libibverbs provider.
#include "fabric/provider_abi.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <climits>

#include "base/unique_fd.hpp"
#include "require.hpp"

void fuzz::run(std::string_view bytes, FuzzedDataProvider) {
  const base::UniqueFd file(::memfd_create("provider", MFD_CLOEXEC));
  require(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "the file is written");
  const auto range = fabric::read_provider_abi(file.get(), "mlx5");
  if (!range) return;
  require(range->min <= range->max && (range->max < 256 || range->max == INT_MAX), "a range has small numbers");
  require(bytes.find("mlx5") != std::string_view::npos, "the file has the provider's name");
}
