// Multiplexer frames and the ttrpc messages in them, read in pieces of any size.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "require.hpp"
#include "shim/ttrpc/frames.hpp"

namespace {

using fuzz::require;

struct Outcome {
  std::map<std::uint32_t, std::string> streams;
  std::string error;
  bool between_frames = false;
  bool operator==(const Outcome&) const = default;
};

// Decodes one read() and returns whether the stream continues. Copies it, so that the sanitizer detects reads beyond
// its end.
bool decode(shim::MuxDecoder& decoder, std::string_view read, Outcome& outcome) {
  const std::vector<char> bytes(read.begin(), read.end());
  std::string_view input(bytes.data(), bytes.size());
  for (;;) {
    const std::size_t before = input.size();
    const auto piece = decoder.next(input);
    require(input.size() <= before, "input only shrinks");
    if (!piece) {
      outcome.error = piece.error().message;
      fuzz::require_one_line(outcome.error, "an error");
      return false;
    }
    if (!*piece) {
      require(input.empty(), "without a piece all input is used");
      return true;
    }
    require(!(*piece)->bytes.empty() && input.size() < before, "a piece makes progress");
    require((*piece)->connection == 1 || (*piece)->connection == 2, "a connection is known");
    outcome.streams[(*piece)->connection] += (*piece)->bytes;
  }
}

Outcome decode_in_reads(std::string_view bytes, std::string_view sizes) {
  shim::MuxDecoder decoder;
  Outcome outcome;
  for (std::size_t i = 0; !bytes.empty(); ++i) {
    const std::size_t size = sizes.empty() ? bytes.size() : 1 + static_cast<unsigned char>(sizes[i % sizes.size()]);
    if (!decode(decoder, bytes.substr(0, size), outcome)) break;
    bytes.remove_prefix(std::min(size, bytes.size()));
  }
  outcome.between_frames = decoder.between_frames();
  return outcome;
}

// Demands that written frames read back.
void check_writer(FuzzedDataProvider& data) {
  const std::string content = data.ConsumeRandomLengthString(9000);
  const shim::Message message{.stream = data.ConsumeIntegral<std::uint32_t>(),
                              .type = shim::MessageType::kResponse,
                              .flags = data.ConsumeIntegral<std::uint8_t>(),
                              .data = content};
  std::string out;
  shim::append_frames(out, shim::kPluginConnection, message);
  const auto stream = decode_in_reads(out, data.ConsumeRandomLengthString(8)).streams[1];
  std::vector<char> buffer(content.size());
  shim::MessageDecoder decoder(buffer);
  std::string_view input = stream;
  const auto read = decoder.next(input);
  require(read && *read && input.empty(), "one message is sent");
  require((*read)->data == content && (*read)->stream == message.stream && (*read)->flags == message.flags,
          "a message reads back");
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const std::string sizes = data.ConsumeBytesAsString(data.ConsumeIntegralInRange<std::size_t>(0, 8));
  if (data.ConsumeBool()) {
    check_writer(data);
    return;
  }
  const std::string stream = data.ConsumeRemainingBytesAsString();
  require(decode_in_reads(stream, sizes) == decode_in_reads(stream, ""), "splits of the stream do not matter");
}
