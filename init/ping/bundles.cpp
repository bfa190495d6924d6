#include "init/ping/bundles.hpp"

#include <utility>

namespace init::ping {
namespace {

constexpr std::size_t kOfMessage = 6;                        // bytes of the rank and the length of a message
constexpr std::size_t kMostInBundle = kLongestFrame - 1024;  // bytes

}  // namespace

void Bundles::add(int connection, unsigned rank, Message message) {
  std::string frame = encode(std::move(message));
  Gathered& gathered = gathered_[connection];
  const std::size_t bytes = frame.size() + kOfMessage;
  if (gathered.bundles.empty() || gathered.bytes + bytes > kMostInBundle ||
      gathered.bundles.back().carried.size() == Bundle::kMost) {
    gathered.bundles.emplace_back();
    gathered.bytes = 0;
  }
  gathered.bundles.back().carried.push_back({rank, std::move(frame)});
  gathered.bytes += bytes;
}

void Bundles::discard(int connection) {
  gathered_.erase(connection);
}

void Bundles::take(bool is_complete, bool is_idle, double now, std::vector<Desk::Outgoing>& out) {
  if (!gathered_.empty() && due_ == kNever) due_ = now + kGatherSeconds;
  if (!is_complete && (!is_idle || now < due_)) return;
  for (auto& [connection, gathered] : gathered_) {
    for (Bundle& bundle : gathered.bundles)
      out.push_back({connection, std::move(bundle)});
  }
  gathered_.clear();
  due_ = kNever;
}

}  // namespace init::ping
