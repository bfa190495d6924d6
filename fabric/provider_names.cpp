#include "fabric/provider_names.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fabric {
namespace {

// Providers by kernel driver (rdma-core 59, providers/).
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kProviders = {
    {{"mlx5_core", "mlx5"}, {"mlx4_core", "mlx4"},    {"bnxt_en", "bnxt_re"}, {"ice", "irdma"},
     {"i40e", "irdma"},     {"idpf", "irdma"},        {"qede", "qedr"},       {"hns3", "hns"},
     {"hfi1", "hfi1verbs"}, {"ib_qib", "ipathverbs"}, {"ib_mthca", "mthca"},  {"be2net", "ocrdma"},
     {"rdma_rxe", "rxe"},   {"cxgb4", "cxgb4"},       {"efa", "efa"},         {"siw", "siw"},
     {"mana", "mana"},      {"erdma", "erdma"},       {"ionic", "ionic"},     {"vmw_pvrdma", "vmw_pvrdma"}}};

}  // namespace

std::string provider_of(const Hca& hca) {
  if (hca.is_efa()) return "efa";
  const auto known = std::ranges::find(kProviders, hca.driver.value_or(""), &decltype(kProviders)::value_type::first);
  return known == kProviders.end() ? std::string() : std::string(known->second);
}

bool is_provider(std::string_view name) {
  return std::ranges::find(kProviders, name, &decltype(kProviders)::value_type::second) != kProviders.end();
}

}  // namespace fabric
