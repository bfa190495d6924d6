// A plugin with answers to CreateContainer of any length, which no real answer has. The container's annotation
// "test/size" sets the length of the data of the ttrpc message.
//
//   sized-plugin SOCKET [EVENT...]     EVENT: numbers to subscribe to; "none": none. Default: CreateContainer
//
// Exit code 3: the runtime has closed the connection.
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/ttrpc/connection.hpp"

namespace {

using base::make_error;
using base::Result;

constexpr int kExitClosed = 3;
constexpr std::string_view kKey = "test/fill";

// Returns the size of a field with this number of bytes. The field's number is below 16.
std::size_t field_size(std::size_t length) {
  std::size_t size = 2 + length;
  for (std::size_t rest = length; rest >= 128; rest /= 128)
    ++size;
  return size;
}

// Response{payload: CreateContainerResponse{adjust: ContainerAdjustment{annotations: {key: value}}}}
std::size_t data_size(std::size_t value) {
  const std::size_t entry = field_size(kKey.size()) + field_size(value);
  return field_size(field_size(field_size(entry)));
}

class Sized : public shim::NriHandler {
 public:
  explicit Sized(std::vector<shim::Event> events) : events_(std::move(events)) {}

  Result<std::vector<shim::Event>> configure(const shim::RuntimeInfo& /*runtime*/) override { return events_; }

  Result<std::string> answer(shim::NriRequest request) override {
    const auto& annotations = request.container.annotations;
    const auto selection = annotations.find("test/size");
    if (request.event != shim::Event::kCreateContainer || selection == annotations.end()) return std::string();
    const auto size = base::parse_number<std::size_t>(selection->second);
    if (!size) return make_error("`{}` is no size", selection->second);
    // Some sizes are impossible, where a length needs one more byte.
    std::size_t value = *size;
    while (value > 0 && data_size(value) > *size)
      --value;
    if (data_size(value) != *size) return make_error("no answer has {} bytes", *size);
    shim::ContainerAdjustment adjustment;
    adjustment.annotations.emplace(kKey, std::string(value, 'x'));
    return shim::create_response(adjustment);
  }

 private:
  std::vector<shim::Event> events_;
};

Result<std::vector<shim::Event>> parse_events(int count, char** words) {
  if (count == 0) return std::vector<shim::Event>{shim::Event::kCreateContainer};
  std::vector<shim::Event> events;
  for (int i = 0; i < count; ++i) {
    if (std::string_view(words[i]) == "none") continue;
    const auto number = base::parse_number<unsigned>(words[i]);
    if (!number || *number < 1 || *number > 30) return make_error("`{}` is no event", words[i]);
    events.push_back(static_cast<shim::Event>(*number));
  }
  return events;
}

Result<shim::Connection::Ended> run(int argc, char** argv) {
  if (argc < 2) return make_error("usage: sized-plugin SOCKET [EVENT...]");
  Sized handler(TRY(parse_events(argc - 2, argv + 2)));
  auto socket = TRY(shim::connect_socket(argv[1]));
  const auto plugin = TRY(shim::NriSession::open(std::move(socket), handler));
  const auto registered = plugin->register_as({"sized", "30"});
  // A runtime that refuses the events closes the connection after Configure, perhaps before it answers the
  // registration.
  if (!registered && registered.error().code == ECONNRESET) return shim::Connection::Ended::kPeer;
  TRY_VOID(registered);
  return plugin->serve();
}

}  // namespace

int main(int argc, char** argv) {
  const auto ended = run(argc, argv);
  if (ended) return *ended == shim::Connection::Ended::kPeer ? kExitClosed : 0;
  fmt::print(stderr, "sized-plugin: {}\n", ended.error().message);
  return 1;
}
