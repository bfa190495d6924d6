// Any bytes as ttrpc messages in reads of any size, and as the requests and responses in them.
#include <algorithm>
#include <string>
#include <vector>

#include "require.hpp"
#include "shim/ttrpc/frames.hpp"
#include "shim/ttrpc/rpc.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace {

using fuzz::require;

constexpr std::size_t kBuffer = 64;  // small, so that messages that do not fit are frequent

bool is_within(std::string_view part, std::string_view whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_fields(std::string_view data) {
  shim::WireReader reader(data);
  for (std::size_t count = 0;; ++count) {
    require(count <= data.size(), "every field has bytes");
    const auto field = reader.next();
    if (!field) fuzz::require_one_line(field.error().message, "an error");
    if (!field || !*field) return;
    require(is_within((*field)->bytes, data), "a field is part of its message");
  }
}

// Demands that a parsed message reads back.
void check_rpc(std::string_view view) {
  const std::vector<char> bytes(view.begin(), view.end());
  const std::string_view data(bytes.data(), bytes.size());
  check_fields(data);
  std::string again;
  if (const auto request = shim::parse_request(data)) {
    require(is_within(request->service, data) && is_within(request->payload, data), "a request points into its data");
    shim::append_request(again, *request);
    require(shim::parse_request(again).value() == *request, "a request reads back");
  }
  again.clear();
  if (const auto response = shim::parse_response(data)) {
    shim::append_response(again, *response);
    auto expected = *response;
    if (expected.code == shim::StatusCode::kOk) expected.message = {};
    require(shim::parse_response(again).value() == expected, "a response reads back");
    const std::string text = shim::status_message({std::string(response->message), 0, "hint"});
    fuzz::require_one_line(text, "the message of a status");
    require(text.size() < 4200, "the message of a status is short");
  }
}

struct Decoded {
  std::vector<std::string> messages;
  std::string error;
  bool between = false;
  bool operator==(const Decoded&) const = default;
};

std::string describe(const shim::Message& message) {
  require(message.too_long == (message.length > kBuffer), "a message is too long if it does not fit");
  require(message.data.size() == (message.too_long ? 0 : message.length), "the data is as long as announced");
  return std::to_string(message.stream) + " " + std::to_string(static_cast<int>(message.type)) + " " +
         std::to_string(message.flags) + " " + std::to_string(message.length) + " " + std::string(message.data);
}

Decoded decode_messages_in_reads(std::string_view bytes, std::string_view sizes) {
  std::vector<char> buffer(kBuffer);
  shim::MessageDecoder decoder(buffer);
  Decoded outcome;
  for (std::size_t i = 0; !bytes.empty() && outcome.error.empty(); ++i) {
    const std::size_t size = sizes.empty() ? bytes.size() : 1 + static_cast<unsigned char>(sizes[i % sizes.size()]);
    const std::string_view read = bytes.substr(0, size);
    const std::vector<char> copy(read.begin(), read.end());
    std::string_view input(copy.data(), copy.size());
    for (;;) {
      const auto message = decoder.next(input);
      require(decoder.buffer_used() <= kBuffer, "the buffer is not overrun");
      if (!message) outcome.error = message.error().message;
      if (!message || !*message) break;
      outcome.messages.push_back(describe(**message));
      check_rpc((*message)->data);
    }
    bytes.remove_prefix(read.size());
  }
  outcome.between = decoder.between_messages();
  return outcome;
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const std::string sizes = data.ConsumeBytesAsString(data.ConsumeIntegralInRange<std::size_t>(0, 8));
  const bool whole = data.ConsumeBool();
  const std::string rest = data.ConsumeRemainingBytesAsString();
  check_rpc(rest);
  if (whole) return;
  require(decode_messages_in_reads(rest, sizes) == decode_messages_in_reads(rest, ""),
          "splits of the stream do not matter");
}
