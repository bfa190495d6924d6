#include "init/ping/messages.hpp"

#include <array>
#include <cerrno>
#include <concepts>
#include <string_view>
#include <utility>

#include "init/ping/ranks.hpp"

namespace init::ping {
namespace {

// Writes fields. Sink and Source have functions of the same names, so that code() describes a message once for both.
class Sink {
 public:
  template <std::unsigned_integral T>
  void number(const T& value) {
    for (std::size_t byte = sizeof(T); byte-- > 0;)
      bytes_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * byte) & 0xFF));
  }
  void text(const std::string& value, std::size_t limit) {
    const std::string_view kept = std::string_view(value).substr(0, limit);
    number(static_cast<std::uint16_t>(kept.size()));
    bytes_ += kept;
  }
  void nonce(const std::string& value) { text(value, kNonce); }
  template <typename T>
  void list(std::vector<T>& values, std::size_t limit, auto element) {
    const std::size_t count = std::min(values.size(), limit);
    number(static_cast<std::uint8_t>(count));
    for (std::size_t i = 0; i < count; ++i)
      element(values[i]);
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

// Reads fields. After the first error all fields are empty.
class Source {
 public:
  explicit Source(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  void number(T& value) {
    std::uint64_t read = 0;
    for (const char byte : take(sizeof(T)))
      read = read << 8 | static_cast<unsigned char>(byte);
    value = static_cast<T>(read);
  }
  void text(std::string& value, std::size_t limit) {
    std::uint16_t length = 0;
    number(length);
    if (length > limit) is_bad_ = true;
    value = take(length);
  }
  void nonce(std::string& value) {
    text(value, kNonce);
    if (value.size() != kNonce) refuse();
  }
  template <typename T>
  void list(std::vector<T>& values, std::size_t limit, auto element) {
    std::uint8_t count = 0;
    number(count);
    if (count > limit) is_bad_ = true;
    for (std::size_t i = 0; i < count && !is_bad_; ++i)
      element(values.emplace_back());
  }
  bool is_complete() const { return !is_bad_ && rest_.empty(); }
  void refuse() { is_bad_ = true; }
  void skip_rest() { rest_ = {}; }

 private:
  std::string_view take(std::size_t count) {
    if (is_bad_ || count > rest_.size()) {
      is_bad_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool is_bad_ = false;
};

void code(Sink& sink, bool& value) {
  sink.number(static_cast<std::uint8_t>(value));
}
void code(Source& source, bool& value) {
  std::uint8_t byte = 0;
  source.number(byte);
  if (byte > 1) source.refuse();
  value = byte == 1;
}

void code(Sink& sink, Layer& layer) {
  sink.number(static_cast<std::uint8_t>(layer));
}
void code(Source& source, Layer& layer) {
  std::uint8_t byte = 0;
  source.number(byte);
  if (byte >= kLayers) return source.refuse();
  layer = static_cast<Layer>(byte);
}

void code(auto& codec, std::unsigned_integral auto& value) {
  codec.number(value);
}
void code(auto& codec, std::string& text) {
  codec.text(text, kLongestText);
}
template <typename T>
void code(auto& codec, std::vector<T>& values) {
  codec.list(values, kMostRails, [&](T& value) { code(codec, value); });
}

void fields(auto& codec, auto&... values) {
  (code(codec, values), ...);
}

void code(auto& codec, fabric::Address& address) {
  for (std::uint8_t& byte : address.bytes)
    codec.number(byte);
}
void code(auto& codec, Failure& failure) {
  fields(codec, failure.layer, failure.detail);
}
void code(auto& codec, Rail& rail) {
  codec.text(rail.device, kLongestName);
  fields(codec, rail.port, rail.infiniband, rail.rate_mbps);
  codec.text(rail.netdev, kLongestName);
  fields(codec, rail.gid_index, rail.gid, rail.mtu, rail.pkey, rail.problem);
}
void code(auto& codec, RailPair& pair) {
  fields(codec, pair.own, pair.peer);
}
void code(auto& codec, Contact& contact) {
  fields(codec, contact.failure, contact.queue_pair, contact.key, contact.address, contact.gid, contact.lid,
         contact.mtu);
}
void code(auto& codec, TestResult& result) {
  fields(codec, result.failure, result.is_own, result.mbps);
}

// The fields that only protocol 1 uses are empty.
void code_fields(auto& codec, Hello& hello) {
  unsigned size = 0;
  std::string node;
  std::vector<std::string> none;
  codec.nonce(hello.nonce);
  fields(codec, hello.rank, size);
  codec.text(node, 0);
  codec.text(hello.host, kLongestName);
  for (int list = 0; list < 2; ++list)  // rails, and ports that NCCL does not use
    codec.list(none, 0, [](std::string&) {});
}
void code(Sink& sink, Hello& hello) {
  sink.number(hello.protocol);
  code_fields(sink, hello);
}
void code(Source& source, Hello& hello) {
  source.number(hello.protocol);
  if (hello.protocol != kProtocol) return source.skip_rest();
  code_fields(source, hello);
}
// Protocol 1 has Welcome at this position.
void code(auto& codec, Refusal& refusal) {
  bool accepted = false;
  std::uint32_t limit_ms = 0;
  fields(codec, accepted, refusal.reason, limit_ms);
}
void code(auto& codec, Challenge& challenge) {
  codec.nonce(challenge.nonce);
}
void code(auto& codec, Join& join) {
  fields(codec, join.rank, join.size);
  codec.text(join.node, kLongestName);
  codec.text(join.host, kLongestName);
  fields(codec, join.rails, join.unused);
}
void code(auto& codec, Welcome& welcome) {
  fields(codec, welcome.accepted, welcome.reason, welcome.limit_ms);
}
void code(auto& codec, Prepare& prepare) {
  code(codec, prepare.bytes);
}
void code(auto& codec, Prepared& prepared) {
  fields(codec, prepared.problem, prepared.rails);
}
void code(auto& codec, Round& round) {
  fields(codec, round.number, round.bytes, round.bandwidth_ms, round.limit_ms, round.peer, round.rails);
}
void code(auto& codec, Contacts& contacts) {
  fields(codec, contacts.round, contacts.contacts);
}
void code(auto& codec, Connected& connected) {
  fields(codec, connected.round, connected.failures);
}
void code(auto& codec, Go& go) {
  fields(codec, go.round, go.connected);
}
void code(auto& codec, Results& results) {
  fields(codec, results.round, results.results);
}
void code(auto& codec, Verdict& verdict) {
  fields(codec, verdict.code, verdict.text, verdict.remedy);
}

template <typename T>
concept IsEmpty = std::is_same_v<T, Proof> || std::is_same_v<T, BecomeRelay> || std::is_same_v<T, StayDirect> ||
    std::is_same_v<T, Lost>;
void code(auto& /*codec*/, IsEmpty auto& /*message*/) {}
void code(auto& codec, RelayAt& at) {
  fields(codec, at.host, at.port);
}
void code(auto& codec, MoveTo& move) {
  fields(codec, move.relay, move.host, move.port);
}
void code(auto& codec, Attach& attach) {
  code(codec, attach.rank);
}
void code(auto& codec, Bundle& bundle) {
  codec.list(bundle.carried, Bundle::kMost, [&](Carried& carried) {
    code(codec, carried.rank);
    codec.text(carried.frame, kLongestFrame);
  });
}

constexpr std::size_t kHeader = 4;
constexpr std::uint8_t kKindOfHello = 0;
constexpr std::uint8_t kKindOfRefusal = 1;
static_assert(std::is_same_v<std::variant_alternative_t<kKindOfHello, Message>, Hello> &&
              std::is_same_v<std::variant_alternative_t<kKindOfRefusal, Message>, Refusal>);

// Reads the message of the kind that Message has at this position.
template <std::size_t... I>
Message read_kind(std::size_t kind, Source& source, std::index_sequence<I...>) {
  Message message;
  const bool is_known = ((kind == I && (code(source, message.emplace<I>()), true)) || ...);
  if (!is_known) source.refuse();
  return message;
}

Result<Message> decode_fields(std::uint8_t kind, std::string_view fields) {
  Source source(fields);
  Message message = read_kind(kind, source, std::make_index_sequence<std::variant_size_v<Message>>());
  if (!source.is_complete()) return make_error("a message of kind {} has wrong fields", kind);
  return message;
}

}  // namespace

std::string encode(Message message, Seal* seal) {
  Sink sink;
  sink.number(std::uint32_t{0});
  sink.number(static_cast<std::uint8_t>(message.index()));
  std::visit([&](auto& content) { code(sink, content); }, message);
  std::string frame = std::move(sink.bytes());
  Sink length;
  length.number(static_cast<std::uint32_t>(frame.size() - kHeader + (seal != nullptr ? kCode : 0)));
  frame.replace(0, kHeader, length.bytes());
  if (seal != nullptr) {
    const Code sealed = seal->next(frame);
    frame.append(sealed.begin(), sealed.end());
  }
  return frame;
}

base::Result<Message> decode(std::string_view frame) {
  Source source(frame);
  std::uint32_t length = 0;
  std::uint8_t kind = 0;
  source.number(length);
  source.number(kind);
  if (frame.size() < kHeader + 1 || length != frame.size() - kHeader)
    return make_error("{} bytes are no frame", frame.size());
  return decode_fields(kind, frame.substr(kHeader + 1));
}

base::Result<std::optional<Message>> Inbox::next() {
  const std::string_view rest = std::string_view(bytes_).substr(taken_);
  const auto wait_for_more = [&] {
    bytes_.erase(0, std::exchange(taken_, 0));
    return std::optional<Message>();
  };
  if (rest.size() < kHeader) return wait_for_more();
  Source header(rest);
  std::uint32_t length = 0;
  header.number(length);
  if (length == 0 || length > kLongestFrame) return make_error("a frame of {} bytes is no message", length);
  if (rest.size() == kHeader) return wait_for_more();
  std::uint8_t kind = 0;
  header.number(kind);
  if (kind == kKindOfHello && !seal_) {
    // The Hello of another protocol may be longer than the limit. Its first field is enough.
    if (rest.size() < kHeader + sizeof kind + sizeof(Hello::protocol)) return wait_for_more();
    Hello hello;
    header.number(hello.protocol);
    if (hello.protocol != kProtocol) return std::optional(Message(std::move(hello)));
  }
  if (length > longest_) return make_error("the sender sent {} bytes that are no message of rdma-ping", length);
  if (rest.size() - kHeader < length) return wait_for_more();
  std::string_view frame = rest.substr(0, kHeader + length);
  const bool is_plain = !seal_ || (seal_->is_new() && kind == kKindOfRefusal);
  if (!is_plain) {
    if (length < 1 + kCode || !seal_->accept(frame.substr(0, frame.size() - kCode), frame.substr(frame.size() - kCode)))
      return base::Error{"the sender of a message does not know the token of this job", EBADMSG};
    frame.remove_suffix(kCode);
  }
  auto message = TRY(decode_fields(kind, frame.substr(kHeader + 1)));
  taken_ += kHeader + length;
  return std::optional(std::move(message));
}

}  // namespace init::ping
