#include "hook/rails/address/cni_args.hpp"

#include <algorithm>
#include <cstddef>

#include "fabric/text.hpp"

namespace hook {
namespace {

constexpr std::string_view kBegin = "IgnoreUnknown=1";
constexpr std::size_t kLongestName = 253;  // of a DNS subdomain, the longest that a pod may be called

struct CniArg {
  std::string_view name;
  std::string PodIdentity::*value;
};
constexpr CniArg kArgs[] = {{"K8S_POD_NAMESPACE", &PodIdentity::pod_namespace},
                            {"K8S_POD_NAME", &PodIdentity::pod_name},
                            {"K8S_POD_INFRA_CONTAINER_ID", &PodIdentity::sandbox_id},
                            {"K8S_POD_UID", &PodIdentity::pod_uid}};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Neither ';' nor '=', which would make two arguments of one.
bool is_kubernetes_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && is_letter_or_digit(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter_or_digit(c) || c == '-' || c == '.'; });
}

}  // namespace

std::string cni_args(const PodIdentity& pod) {
  std::string args;
  for (const CniArg& arg : kArgs) {
    const std::string& value = pod.*arg.value;
    if (is_kubernetes_name(value)) args += fmt::format(";{}={}", arg.name, value);
  }
  return args.empty() ? args : std::string(kBegin) + args;
}

bool is_cni_args(std::string_view text) {
  const auto parts = fabric::split(text, ';');
  if (parts.size() < 2 || parts[0] != kBegin) return false;
  auto next = std::begin(kArgs);
  return std::all_of(parts.begin() + 1, parts.end(), [&](std::string_view part) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return false;
    next = std::find_if(next, std::end(kArgs), [&](const CniArg& arg) { return arg.name == part.substr(0, equals); });
    if (next == std::end(kArgs)) return false;
    ++next;
    return is_kubernetes_name(part.substr(equals + 1));
  });
}

}  // namespace hook
