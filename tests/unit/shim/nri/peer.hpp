// The runtime's end of a connection, for tests. It encodes and decodes NRI's protocol itself, by NRI's field numbers. A
// handler that records its calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "shim/nri/wire/session.hpp"

namespace shim_peer {

// Numbers on the wire.
std::string u32(std::uint32_t value);
std::string frame(std::uint32_t connection, std::string_view payload);
// A ttrpc message in one frame. type: 1 request, 2 response.
std::string message(std::uint32_t connection, std::uint32_t stream, int type, std::string_view data, int flags = 0);

// Protobuf fields.
std::string number(unsigned field, std::uint64_t value);
std::string text(unsigned field, std::string_view bytes);
std::string entry(unsigned field, std::string_view key, std::string_view value);

// The data of a ttrpc request with a timeout and metadata, as containerd sends it with tracing.
std::string request(std::string_view method, std::string_view payload,
                    std::string_view service = "nri.pkg.api.v1alpha1.Plugin");

struct Message {
  std::uint32_t connection = 0;
  std::uint32_t stream = 0;
  int type = 0;
  std::string data;
};

// The fields of a message by number, the last one of each: length-delimited ones as bytes, varints as decimal text.
std::map<unsigned, std::string> fields(std::string_view data);
// Returns the payload of a successful response, else "status CODE: MESSAGE".
std::string answer(std::string_view response);

class Peer {
 public:
  // The other end belongs to the plugin.
  Peer();
  base::UniqueFd take_plugin_end() { return std::move(plugin_); }
  int fd() const { return runtime_.get(); }

  void send(std::string_view bytes) const;
  // Returns the messages that have arrived. Joins the frames of a message.
  std::vector<Message> received();
  // Returns the next message, with a timeout that is long enough for any machine.
  std::optional<Message> wait();
  void close() { runtime_.reset(); }

 private:
  bool read_some(std::chrono::milliseconds patience);
  std::optional<Message> take_message();

  base::UniqueFd plugin_;
  base::UniqueFd runtime_;
  std::string input_;
  std::map<std::uint32_t, std::string> streams_;
};

using base::Error;
using base::Result;

// Values as NRI 0.12.2 sends them, with fields that the plugin does not know.
std::string pod_message(std::string_view id);
std::string container_message(std::string_view id);
std::string create_message();
shim::NriPod pod_value(std::string_view id);
shim::NriContainer container_value(std::string_view id);

class Recorder : public shim::NriHandler {
 public:
  std::vector<std::string> calls;
  std::vector<shim::Event> wanted = {shim::Event::kRunPodSandbox, shim::Event::kCreateContainer,
                                     shim::Event::kRemoveContainer};
  shim::RuntimeInfo runtime;
  shim::NriPod pod;
  shim::NriContainer container;
  shim::ContainerAdjustment adjustment;
  std::optional<Error> failure;  // result of the next request

  Result<std::vector<shim::Event>> configure(const shim::RuntimeInfo& info) override;
  void synchronize_begin() override { calls.emplace_back("synchronize"); }
  void found(const shim::NriPod& each) override { calls.push_back("found pod " + each.id); }
  void found(const shim::NriContainer& each) override { calls.push_back("found container " + each.id); }
  Result<void> synchronize_end() override { return note("synchronized"); }
  Result<std::string> answer(shim::NriRequest request) override;

 private:
  Result<void> note(const std::string& what);
};

}  // namespace shim_peer
