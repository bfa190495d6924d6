// The layers of a connection between two ranks, in the order in which they are checked. The first layer that fails is
// the one that a report names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace init::ping {

enum class Layer : std::uint8_t {
  kGood,
  kRank,       // the rank has ended, is silent, or never came
  kLibrary,    // libibverbs is not in the image
  kProvider,   // libibverbs does not open the HCA
  kMemlock,    // RLIMIT_MEMLOCK is too low for one buffer of NCCL
  kRoute,      // the rail's address has no route to the peer
  kNeighbour,  // the peer's MAC address is not resolved
  kGid,        // the index has no GID, or the two GIDs have different types
  kPkey,       // the P_Keys of the two ports do not fit
  kMtu,        // a small packet arrives, a packet of the path MTU does not
  kReceiver,   // receiver not ready (RNR)
  kRetry,      // the peer does not acknowledge
  kData,       // the data that arrived is not the data that was sent
  kVerbs,      // any other failure of a verb
  kUntested,   // the test has no result: the time budget ended, or an earlier failure made the test useless
};
inline constexpr std::size_t kLayers = static_cast<std::size_t>(Layer::kUntested) + 1;

// The word, letter, colors and remedy of a layer in reports.
struct LayerInfo {
  std::string_view name;             // name in JSON and tables: "memlock"
  char letter;                       // letter in a matrix
  std::string_view light, dark;      // colors of a cell on a light and on a dark background
  std::string_view remedy;           // what to do about a failure, one line; empty: none is known
  std::string_view infiniband = {};  // the same on InfiniBand; empty: the same text
};
const LayerInfo& about(Layer layer);
std::string_view remedy_of(Layer layer, bool infiniband);

// A failure, or success: kGood with an empty text.
struct Failure {
  Layer layer = Layer::kGood;
  std::string detail = {};  // one line with the objects and the cause

  bool failed() const { return layer != Layer::kGood; }
  friend bool operator==(const Failure&, const Failure&) = default;
};

}  // namespace init::ping
