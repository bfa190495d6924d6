#include "fabric/find_netdevs.hpp"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "fabric/read_network.hpp"

namespace fabric::netlink {
namespace {

// More netdevs than this are read faster with the dump of all netdevs.
constexpr std::size_t kMost = 64;
// A request for the addresses of one netdev costs two system calls. For more netdevs than this, one dump of all
// addresses is cheaper, unless the node has thousands.
constexpr std::size_t kMostAddressRequests = 16;

// RTM_GETLINK for one netdev, by its name or by its ifindex. The kernel uses the ifindex if it is not 0
// (rtnl_getlink(), net/core/rtnetlink.c, Linux 6.12).
struct LinkRequest {
  ifinfomsg link{};
  nlattr mask_header{NLA_HDRLEN + sizeof(std::uint32_t), IFLA_EXT_MASK};
  // Without statistics, which the kernel adds up over all CPUs.
  std::uint32_t mask = RTEXT_FILTER_SKIP_STATS;
  nlattr name_header{NLA_HDRLEN + IFNAMSIZ, IFLA_IFNAME};
  char name[IFNAMSIZ] = {};

  Bytes bytes() const {
    const Bytes whole = bytes_of(*this);
    return link.ifi_index == 0 ? whole : whole.first(offsetof(LinkRequest, name_header));
  }
};

// Returns false for another netdev, such as one whose alternative name was requested.
bool is_answer(const LinkRequest& request, const Netdev& netdev) {
  return request.link.ifi_index == 0 ? netdev.name == request.name : netdev.ifindex == request.link.ifi_index;
}

class Finder {
 public:
  Finder(Socket socket, const FindNetdevs& wanted) : socket_(std::move(socket)), wanted_(wanted) {}

  // Adds the netdevs and the netdevs above them. Returns false if that is not possible.
  bool find_links() {
    for (const std::string& name : wanted_.names)
      want(name, true);
    if (!request_all_links()) return false;
    // Afterwards: a netdev of both lists is requested once, and the netdevs above it are found.
    for (const int ifindex : wanted_.ifindexes)
      want(ifindex, false);
    if (!request_all_links()) return false;
    std::ranges::sort(netdevs_, {}, &Netdev::ifindex);
    fill_masters(netdevs_);
    return true;
  }

  // Adds the addresses of the netdevs that were found.
  bool find_addresses() {
    if (netdevs_.size() > kMostAddressRequests) return request_addresses(0);
    for (std::size_t i = 0; i < netdevs_.size(); ++i)
      if (!request_addresses(netdevs_[i].ifindex)) return false;
    return true;
  }

  std::vector<Netdev> take() && { return std::move(netdevs_); }

 private:
  struct Request {
    LinkRequest message;
    bool with_uppers = false;
  };

  bool has(const std::string& name) const {
    const auto is_asked = [&](const Request& request) { return name == request.message.name; };
    return std::ranges::find(netdevs_, name, &Netdev::name) != netdevs_.end() ||
           std::ranges::any_of(requests_, is_asked);
  }

  void want(const std::string& name, bool with_uppers) {
    // No netdev has a longer name.
    if (name.empty() || name.size() >= IFNAMSIZ || has(name)) return;
    Request request{{}, with_uppers};
    std::memcpy(request.message.name, name.data(), name.size());
    requests_.push_back(request);
  }

  void want(int ifindex, bool with_uppers) {
    const auto is_asked = [&](const Request& request) { return request.message.link.ifi_index == ifindex; };
    if (ifindex <= 0 || std::ranges::any_of(requests_, is_asked)) return;
    if (std::ranges::find(netdevs_, ifindex, &Netdev::ifindex) != netdevs_.end()) return;
    Request request{{}, with_uppers};
    request.message.link.ifi_index = ifindex;
    requests_.push_back(request);
  }

  bool request_all_links() {
    while (!requests_.empty()) {
      if (requests_.size() + netdevs_.size() > kMost || !request_links()) return false;
    }
    return true;
  }

  // Makes up to Socket::kMostQueries of the requests, and adds requests for the netdevs above the answers.
  bool request_links() {
    const std::size_t count = std::min(requests_.size(), Socket::kMostQueries);
    const std::vector<Request> sent(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<Socket::Query> queries;
    queries.reserve(sent.size());
    for (const Request& request : sent)
      queries.push_back({RTM_GETLINK, 0, request.message.bytes()});
    std::vector<std::optional<Netdev>> answers(count);
    const auto codes = socket_.request_all(
        queries, [&](std::size_t query, const Message& message) { answers[query] = parse_link(message); });
    if (!codes) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if ((*codes)[i] == ENODEV) continue;
      if ((*codes)[i] != 0 || !answers[i] || !is_answer(sent[i].message, *answers[i])) return false;
      if (!add(std::move(*answers[i]), sent[i].with_uppers)) return false;
    }
    return true;
  }

  bool add(Netdev netdev, bool with_uppers) {
    if (std::ranges::find(netdevs_, netdev.ifindex, &Netdev::ifindex) != netdevs_.end()) return true;
    want(netdev.master_ifindex, with_uppers);
    netdevs_.push_back(std::move(netdev));
    if (!with_uppers || !wanted_.uppers_of) return true;
    const auto uppers = wanted_.uppers_of(netdevs_.back());
    for (const std::string& name : uppers.value_or(std::vector<std::string>()))
      want(name, true);
    return uppers.has_value();
  }

  // Requests the addresses of one netdev; 0: of all netdevs.
  bool request_addresses(int ifindex) {
    ifaddrmsg header{};
    header.ifa_index = static_cast<std::uint32_t>(ifindex);
    const Socket::Query query{RTM_GETADDR, NLM_F_DUMP, bytes_of(header)};
    const auto codes =
        socket_.request_all({&query, 1}, [&](std::size_t, const Message& message) { add_address(netdevs_, message); });
    return codes && codes->front() == 0;
  }

  Socket socket_;
  const FindNetdevs& wanted_;
  std::vector<Request> requests_;
  std::vector<Netdev> netdevs_;
};

}  // namespace

std::optional<std::vector<Netdev>> find_netdevs(const FindNetdevs& wanted) {
  auto socket = Socket::open(NETLINK_ROUTE);
  if (!socket || !socket->set_strict()) return std::nullopt;
  Finder finder(std::move(*socket), wanted);
  if (!finder.find_links() || !finder.find_addresses()) return std::nullopt;
  return std::move(finder).take();
}

}  // namespace fabric::netlink
