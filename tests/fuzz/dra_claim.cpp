// Any text as a ResourceClaim of the API server.
#include <algorithm>

#include "hook/config/values.hpp"
#include "require.hpp"
#include "shim/dra/claims.hpp"

namespace {

using fuzz::require;

void check_device(const hook::ClaimDevice& device) {
  require(shim::is_dns_label(device.request), "a request is a label", device.request);
  require(shim::is_dns_subdomain(device.pool), "a pool is a name", device.pool);
  require(shim::is_dns_label(device.name), "a device is a label", device.name);
  require(device.share_id.empty() || shim::is_uid(device.share_id), "a share is a UID", device.share_id);
  require(device.units > 0 && device.units <= UINT16_MAX, "a number of units");
  require(!device.network || hook::is_config_name(*device.network), "a network is a name");
  for (const auto& limit : {device.limits.objects, device.limits.handles})
    require(!limit || (*limit > 0 && *limit < INT32_MAX), "a limit is one of config.json");
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  auto claim = shim::parse_claim(text);
  if (!claim) return require_refusal(claim.error(), "the refusal of a claim");
  require(shim::is_uid(claim->uid) && claim->uid.find('.') == std::string::npos, "a UID is a part of a name",
          claim->uid);
  require(shim::is_dns_label(claim->space) && shim::is_dns_subdomain(claim->name), "the claim has a name");
  require(claim->devices.size() <= 32 && claim->pods.size() <= 256, "the limits of the API");
  std::ranges::for_each(claim->devices, check_device);
  shim::DeviceNames names;
  for (const hook::ClaimDevice& device : claim->devices)
    names.emplace("h" + device.name, device.name);
  const std::string node = claim->devices.empty() ? "n1" : claim->devices.front().pool;
  const auto found = shim::find_hcas(*claim, names, node);
  if (!found) return require_refusal(found.error(), "the refusal of a device");
  for (const hook::ClaimDevice& device : claim->devices)
    require(device.hca == "h" + device.name, "an HCA for each device");
}
