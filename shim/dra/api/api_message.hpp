// The messages between the driver, which is root, and its process that talks to the API server. They are texts of
// base/packed_record.hpp. The driver trusts nothing that this process sends, because the process parses untrusted
// input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/packed_record.hpp"
#include "base/result.hpp"
#include "base/text.hpp"

namespace shim {

struct ApiMessage {
  enum class Kind : std::uint8_t {
    // From the driver.
    kCredential,  // text: the token; more: the CA. An empty token: it cannot be read, and `more` says why
    kChanged,     // the wanted ResourceSlices are other ones
    kSlices,      // text: a JSON array of them
    kGetClaim,    // id; number: seconds of CLOCK_MONOTONIC at which the call ends; text: the namespace; more: the name
    kEvent,       // text: the namespace; more: the JSON of an Event
    // To the driver.
    kNeedCredential,
    kNeedSlices,
    kCluster,  // number: the minor version of Kubernetes; text: UID of the Node object
    kClaim,    // id; number: the status of HTTP, 0: no answer; text: the claim's JSON, or why there is none; more: the
               // remedy then
    kState,    // text: why the slices are not published, empty: they are; more: the remedy
    kDropped,  // text: the part of a slice that the API server has not kept
  };
  Kind kind = Kind::kState;
  std::uint64_t id = 0;
  std::uint32_t number = 0;
  std::string text = {};
  std::string more = {};
};

void describe(auto& member, ApiMessage& message) {
  member("kind", message.kind);
  member("id", message.id);
  member("number", message.number);
  member("text", message.text);
  member("more", message.more);
}

inline std::string packed(const ApiMessage& message) {
  std::string text;
  base::pack(text, message);
  return text;
}
// Returns nullopt for a text that is no message.
inline std::optional<ApiMessage> unpacked(std::string_view text) {
  ApiMessage message;
  const bool is_whole = base::unpack(text, message) && text.empty() && message.kind <= ApiMessage::Kind::kDropped;
  return is_whole ? std::optional(std::move(message)) : std::nullopt;
}

// Returns the failure that a message to the driver states, for its log, the kubelet and events. The sender has escaped
// the parts that come from the API server. Control characters are replaced here too, because the sender is not trusted.
inline base::Error failure_of(const ApiMessage& message) {
  constexpr std::size_t kLongest = 1024;
  return {base::one_line(std::string_view(message.text).substr(0, kLongest)), 0,
          base::one_line(std::string_view(message.more).substr(0, kLongest))};
}

// Longest message in bytes: a claim has at most 1.5 MiB, and the slices of a node with hundreds of VFs less.
inline constexpr std::size_t kMostMessage = std::size_t{4} << 20;

}  // namespace shim
