// The messages between rank 0 and the ranks, and their bytes. Pure.
//
// A frame is the length of its rest (4 bytes), the kind of the message (1 byte), the fields and the code of a Seal (32
// bytes). Hello, Challenge and Refusal have no code. Integers are big-endian. A text is its length (2 bytes) and its
// bytes, a list its length (1 byte) and its elements. Every length is checked against a limit, and a frame must end
// with its last field: the peer may be any program that found the port.
//
// A rank can report through another one, a relay. Between rank 0 and a relay, a Bundle carries the messages of several
// ranks, and the relay exchanges each of them with its rank.
//
// Versions differ in kProtocol, and name each other: Hello begins with the protocol, and Hello and Refusal have the
// same kind and fields in all versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"
#include "init/ping/layers.hpp"
#include "init/ping/outcome.hpp"
#include "init/ping/seal.hpp"

namespace init::ping {

inline constexpr std::uint16_t kProtocol = 4;
inline constexpr std::size_t kMostRails = 32;         // nccl::kMaxPorts
inline constexpr std::size_t kLongestText = 400;      // limit of the details of failures
inline constexpr std::size_t kLongestName = 64;       // limit of the names of hosts, devices and netdevs
inline constexpr std::uint32_t kMostBytes = 1 << 20;  // limit of a write
inline constexpr std::size_t kLongestFrame = 40'000;
inline constexpr std::size_t kLongestFirstFrame = 256;  // limit of a frame from a peer that has not proven the token

// Rank to rank 0: the first message. Another protocol has other fields after the first one, which are not read.
struct Hello {
  std::uint16_t protocol = kProtocol;
  std::string nonce;  // kNonce random bytes
  unsigned rank = 0;  // number of the rank, only for messages
  std::string host;
};
// Rank 0 to rank, without a code: rank 0 does not accept the token or the protocol of the rank, and closes the
// connection.
struct Refusal {
  std::string reason;
};
// Rank 0 to rank: the answer to Hello.
struct Challenge {
  std::string nonce;  // kNonce random bytes
};
// Rank to rank 0: the first message with a code, short, because rank 0 keeps no long message of a stranger.
struct Proof {};
// Rank to rank 0, after Proof: the rank wants its place in the job.
struct Join {
  unsigned rank = 0;
  unsigned size = 0;
  std::string node;  // the same text for all ranks with the same kernel and network namespace
  std::string host;
  std::vector<Rail> rails;
  std::vector<std::string> unused;
};
// Rank 0 to rank: the answer to Join, which proves to the rank that rank 0 knows the token.
struct Welcome {
  bool accepted = false;
  std::string reason;          // why the rank is not accepted
  std::uint32_t limit_ms = 0;  // the verdict comes within this time
};
// Rank 0 to the ranks that test: open the HCAs.
struct Prepare {
  std::uint32_t bytes = 0;  // longest write of a test
};
// Rank to rank 0, after Prepare: the rails with their problems.
struct Prepared {
  Failure problem;  // why the rank itself failed
  std::vector<Rail> rails;
};
// Two rails for one queue pair.
struct RailPair {
  std::uint8_t own = 0;
  std::uint8_t peer = 0;
};
// Rank 0 to two ranks: make queue pairs for these rails.
struct Round {
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;         // length of the write
  std::uint32_t bandwidth_ms = 0;  // write for this time after the test; 0: only the test
  std::uint32_t limit_ms = 0;      // time limit of one test in milliseconds, without the time for bandwidth
  std::uint32_t peer = 0;          // rank of the peer
  std::vector<RailPair> rails;
};
// One end of a queue pair, or the reason why there is none.
struct Contact {
  Failure failure;
  std::uint32_t queue_pair = 0;
  std::uint32_t key = 0;      // rkey of the receive buffer
  std::uint64_t address = 0;  // address of the receive buffer
  fabric::Address gid;
  std::uint16_t lid = 0;
  std::uint16_t mtu = 0;  // bytes
};
// Rank to rank 0, and from there to the peer: connect the queue pairs.
struct Contacts {
  std::uint32_t round = 0;
  std::vector<Contact> contacts;  // the ends in the order of Round::rails
};
// Rank to rank 0: for each queue pair, whether it can send.
struct Connected {
  std::uint32_t round = 0;
  std::vector<Failure> failures;
};
// Rank 0 to rank: write on the queue pairs that are connected at both ends.
struct Go {
  std::uint32_t round = 0;
  std::vector<std::uint8_t> connected;  // for each queue pair: 1 if it is connected at both ends, otherwise 0
};
struct TestResult {
  Failure failure;
  bool is_own = false;     // the cause is at this end
  std::uint32_t mbps = 0;  // bandwidth of this end's writes in megabits per second; 0: not measured
};
// Rank to rank 0, after Go: the result of each queue pair.
struct Results {
  std::uint32_t round = 0;
  std::vector<TestResult> results;
};
// Rank 0 to every rank: the last message.
struct Verdict {
  std::uint8_t code = 0;  // exit code of the rank
  std::string text;       // verdict as one line
  std::string remedy;     // remedy as one line, may be empty
};
// Rank 0 to rank, before Prepare: become a relay. The rank answers with RelayAt or StayDirect.
struct BecomeRelay {};
// Rank to rank 0: it is a relay, and listens at this address.
struct RelayAt {
  std::string host;  // numeric
  std::uint16_t port = 0;
};
// Rank 0 to rank, before Prepare: report through this relay. The rank sends Attach there, or answers with StayDirect.
struct MoveTo {
  unsigned relay = 0;  // rank
  std::string host;
  std::uint16_t port = 0;
};
// Rank to rank 0: it reports on this connection.
struct StayDirect {};
// Rank to relay after Proof, and from there to rank 0: the rank, which has joined, reports through this relay. The
// answer is Welcome.
struct Attach {
  unsigned rank = 0;
};
// Relay to rank 0, as a message of a rank: its connection to the relay has ended.
struct Lost {};
// A message of a rank, or to it.
struct Carried {
  unsigned rank = 0;
  std::string frame;  // without a code
};
// Between rank 0 and a relay. An empty one shows that the relay runs.
struct Bundle {
  static constexpr std::size_t kMost = 255;  // messages
  std::vector<Carried> carried;
};

using Message =
    std::variant<Hello, Refusal, Prepare, Prepared, Round, Contacts, Connected, Go, Results, Verdict, Challenge, Proof,
                 Join, Welcome, BecomeRelay, RelayAt, MoveTo, StayDirect, Attach, Lost, Bundle>;

// Returns the frame of a message. Texts above their limit are cut; lists must not exceed theirs. seal: the sender's;
// nullptr: the message has no code.
std::string encode(Message message, Seal* seal = nullptr);

// Returns the message of one frame without a code. Errors: the bytes are no message.
base::Result<Message> decode(std::string_view frame);

// Collects bytes from a stream and returns its messages.
class Inbox {
 public:
  // longest: limit of a frame in bytes.
  explicit Inbox(std::size_t longest = kLongestFrame) : longest_(longest) {}
  void set_longest(std::size_t longest) { longest_ = longest; }
  // From now on each frame must have the code of the sender's seal. Before the first of them, a Refusal may come.
  void require(const Seal& seal) { seal_ = seal; }
  void add(const char* bytes, std::size_t count) { bytes_.append(bytes, count); }
  // Returns the next message, nullopt if its bytes are not complete. Errors: the bytes are no message; EBADMSG: the
  // code is wrong. Do not call it again after an error, or after the Hello of another protocol.
  base::Result<std::optional<Message>> next();

 private:
  std::string bytes_;
  std::size_t taken_ = 0;
  std::size_t longest_;
  std::optional<Seal> seal_;
};

}  // namespace init::ping
