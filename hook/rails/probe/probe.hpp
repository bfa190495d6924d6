// Does the gateway answer, does another host have our address: ARP (RFC 826, 5227) and neighbour discovery (RFC 4861)
// by a packet socket of the container's namespace, for all rails at the same time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct Probe {
  enum class Kind { kGateway, kDuplicate };
  Kind kind = Kind::kGateway;
  std::string netdev;      // for people
  int ifindex = 0;         // of an Ethernet netdev that is up
  MacAddress mac{};        // the netdev's own
  fabric::Address source;  // kGateway: ours. kDuplicate: not used, the probe says nothing of us
  fabric::Address target;  // the gateway, or the address that should be free
};

struct ProbeOptions {
  unsigned retries = 3;  // tries in all
  std::chrono::milliseconds interval{100};
};

struct ProbeAnswer {
  bool answered = false;
  MacAddress mac{};  // who answered, or who wants the same address at this moment; none of the probes' own
  unsigned tries = 0;
};

// packet: AF_PACKET, SOCK_RAW, protocol 0, not bound; bound and filtered here, of no other use afterwards, and its
// close(2) waits for an RCU grace period. One answer per probe, in their order. A kGateway probe ends with the first
// answer, a kDuplicate probe is over when all its tries were silent. Takes at most retries x interval for all of them
// together. A frame with a VLAN tag is another network's; what one of the probed netdevs itself says is no answer,
// since the rails of a container may answer for each other (arp_ignore 0). Children of one ipvlan parent share its MAC:
// that none of them has the address is for the kernel to say (EADDRINUSE).
// Errors, each naming the netdev: the socket; a netdev that is gone, or no Ethernet (IPoIB has other frames). A netdev
// that is down counts as silent, and so does a try for which its queue has no room.
// System calls: bind, getsockname, setsockopt, sendto, ppoll, recvfrom.
fabric::Result<std::vector<ProbeAnswer>> run_probes(int packet, const std::vector<Probe>& probes,
                                                    const ProbeOptions& options);

}  // namespace hook
