#include "shim/dra/claim_event.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "base/utc_time.hpp"

namespace shim {
namespace {

using base::Json;

constexpr std::size_t kLongestEventText = 1024;  // bytes of a message (Kubernetes 1.34 to 1.37)
constexpr std::size_t kLongestEventName = 200;   // the API server adds five characters

// Returns the text without line breaks, and cuts it at the limit of the API server. An error has its untrusted parts
// escaped already.
std::string event_text(std::string_view text) {
  std::string line = base::one_line(text);
  line.resize(std::min(line.size(), kLongestEventText));
  while (!base::is_utf8(line))
    line.pop_back();
  return line;
}

}  // namespace

std::string_view event_reason(base::FailureReason reason) {
  using enum base::FailureReason;
  switch (reason) {
    case kBusy:
      return "HcaInUse";
    case kNoHca:
      return "HcaMissing";
    case kConfig:
    case kRefused:
      return "Refused";
    default:
      return "FailedPrepare";
  }
}

Json claim_event(const ClaimKey& claim, const base::Error& why, std::string_view node, std::time_t now) {
  const std::string time = base::utc_text(now);
  // The API server refuses a label that ends with "-", and an empty one.
  std::string name = claim.name.substr(0, kLongestEventName);
  name.resize(name.find_last_not_of(".-") + 1);
  Json event{{"apiVersion", "v1"}, {"kind", "Event"}};
  event["metadata"] = Json{{"generateName", name + "."}, {"namespace", claim.space}};
  event["involvedObject"] = Json{{"apiVersion", "resource.k8s.io/v1"},
                                 {"kind", "ResourceClaim"},
                                 {"namespace", claim.space},
                                 {"name", claim.name},
                                 {"uid", claim.uid}};
  event["type"] = "Warning";
  event["reason"] = event_reason(why.reason);
  event["message"] = event_text(fmt::format("node {}: {}", node, base::with_remedy(why)));
  event["source"] = Json{{"component", kDraProgram}, {"host", node}};
  event["reportingComponent"] = kDraProgram;
  event["reportingInstance"] = node;
  event["firstTimestamp"] = time;
  event["lastTimestamp"] = time;
  event["count"] = 1;
  return event;
}

}  // namespace shim
