// Any text as a ResourceClaim of the API server.
#include <algorithm>

#include "hook/config/values.hpp"
#include "require.hpp"
#include "shim/dra/claims.hpp"

namespace {

using fuzz::require;

void check_device(const shim::ClaimedDevice& device) {
  require(shim::is_dns_label(device.request), "a request is a label", device.request);
  require(shim::is_dns_subdomain(device.pool), "a pool is a name", device.pool);
  require(shim::is_dns_label(device.device), "a device is a label", device.device);
  require(device.share_id.empty() || shim::is_uid(device.share_id), "a share is a UID", device.share_id);
  require(device.units > 0 && device.units <= UINT16_MAX, "a number of units");
  require(!device.parameters.network || hook::is_config_name(*device.parameters.network), "a network is a name");
  for (const auto& limit : {device.parameters.limits.objects, device.parameters.limits.handles})
    require(!limit || (*limit > 0 && *limit < INT32_MAX), "a limit is one of config.json");
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto claim = shim::parse_claim(text);
  if (!claim) return require_refusal(claim.error(), "the refusal of a claim");
  require(shim::is_uid(claim->key.uid) && claim->key.uid.find('.') == std::string::npos, "a UID is a part of a name",
          claim->key.uid);
  require(shim::is_dns_label(claim->key.space) && shim::is_dns_subdomain(claim->key.name), "the claim has a name");
  require(claim->devices.size() <= 32 && claim->pods.size() <= 256, "the limits of the API");
  std::ranges::for_each(claim->devices, check_device);
  shim::DeviceNames names;
  for (const shim::ClaimedDevice& device : claim->devices)
    names.emplace("h" + device.device, device.device);
  const std::string node = claim->devices.empty() ? "n1" : claim->devices.front().pool;
  const auto hcas = shim::claimed_hcas(*claim, names, node);
  if (!hcas) return require_refusal(hcas.error(), "the refusal of a device");
  require(hcas->size() == claim->devices.size(), "an HCA for each device");
}
