#include "fabric/library_variables.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

namespace fabric {
namespace {

constexpr std::size_t kLongestSiteValue = 255;
constexpr std::array<std::string_view, 8> kVariablePrefixes = {"NCCL_", "UCX_",  "NVSHMEM_",  "MSCCLPP_",
                                                               "GLOO_", "UCCL_", "FI_VERBS_", "OMPI_MCA_btl_openib_"};
// Mooncake's variables are listed by full name: MinIO's client stores its keys in MC_HOST_*, and a snapshot is attached
// to bug reports.
constexpr std::array<std::string_view, 10> kVariableNames = {
    "MC_GID_INDEX",  "MC_TE_FILTERS", "MC_TE_FILTERS_EXCLUDE", "MC_IB_PORT", "MC_IB_TC", "MC_IB_SL",
    "MC_PKEY_INDEX", "MC_MTU",        "MOONCAKE_DEVICE",       "FI_PROVIDER"};
constexpr std::array<std::string_view, 4> kMorePolicyPrefixes = {"FI_", "OMPI_MCA_", "RCCL_", "HCCL_"};

// The first letters of these variables. Most variables of a container have another one, and each start searches all.
constexpr std::string_view kFirstLetters = "FGHMNORU";

constexpr bool may_be_one(std::string_view name) {
  return !name.empty() && kFirstLetters.find(name.front()) != std::string_view::npos;
}

static_assert(std::ranges::all_of(kVariablePrefixes, may_be_one) && std::ranges::all_of(kVariableNames, may_be_one) &&
              std::ranges::all_of(kMorePolicyPrefixes, may_be_one));

constexpr std::array<std::string_view, 19> kWireVariables = {"NCCL_IB_TC",
                                                             "NCCL_IB_FIFO_TC",
                                                             "NCCL_IB_SL",
                                                             "NCCL_IB_TIMEOUT",
                                                             "NCCL_IB_RETRY_CNT",
                                                             "NCCL_IB_PKEY",
                                                             "NCCL_IB_QPS_PER_CONNECTION",
                                                             "NCCL_IB_SPLIT_DATA_ON_QPS",
                                                             "NCCL_IB_ADAPTIVE_ROUTING",
                                                             "NCCL_IB_AR_THRESHOLD",
                                                             "UCX_IB_TRAFFIC_CLASS",
                                                             "UCX_IB_SL",
                                                             "NVSHMEM_IB_TRAFFIC_CLASS",
                                                             "NVSHMEM_IB_SL",
                                                             "UCCL_IB_TC",
                                                             "UCCL_IB_SL",
                                                             "MC_IB_TC",
                                                             "MC_IB_SL",
                                                             "HCCL_RDMA_TC"};

bool begins_with_one(std::span<const std::string_view> prefixes, std::string_view name) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_name(std::string_view name) {
  return std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

bool is_library_variable(std::string_view name) {
  return std::ranges::find(kVariableNames, name) != kVariableNames.end() || begins_with_one(kVariablePrefixes, name);
}

bool is_policy_variable(std::string_view name) {
  return may_be_one(name) && is_name(name) && (is_library_variable(name) || begins_with_one(kMorePolicyPrefixes, name));
}

bool is_wire_variable(std::string_view name) {
  return std::ranges::find(kWireVariables, name) != kWireVariables.end();
}

bool is_site_value(std::string_view value) {
  return !value.empty() && value.size() <= kLongestSiteValue &&
         std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~' && c != ';'; });
}

std::string site_text(const std::map<std::string, std::string>& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", name, value);
  return text;
}

}  // namespace fabric
