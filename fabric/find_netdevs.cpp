#include "fabric/find_netdevs.hpp"

#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "fabric/read_network.hpp"

namespace fabric::netlink {
namespace {

// More netdevs than this are read faster with the dump of all netdevs.
constexpr std::size_t kMost = 64;
// A request for the addresses of one netdev costs two system calls. For more netdevs than this, one dump of all
// addresses is cheaper, unless the node has thousands.
constexpr std::size_t kMostAddressRequests = 16;

bool has(const auto& list, const std::string& name) {
  return std::ranges::any_of(list, [&](const auto& one) { return one.name == name; });
}
bool has(const auto& list, int ifindex) {
  return std::ranges::any_of(list, [&](const auto& one) { return one.ifindex == ifindex; });
}

class Finder {
 public:
  Finder(Socket socket, const FindNetdevs& wanted) : socket_(std::move(socket)), wanted_(wanted) {}

  // Adds the netdevs and the netdevs above them. Returns false if that is not possible.
  bool find_links() {
    for (const std::string& name : wanted_.names)
      want(name, true);
    if (!request_all_links()) return false;
    // The netdevs with an ifindex come after the names: a netdev of both lists is requested once, and the netdevs above
    // it are found.
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
  // RTM_GETLINK for one netdev, by its ifindex if it is not 0, else by its name.
  struct Request {
    std::string name;
    int ifindex = 0;
    bool with_uppers = false;

    Query message() const {
      ifinfomsg header{};
      header.ifi_index = ifindex;
      Query message(RTM_GETLINK, 0, header);
      // Requests no statistics, because the kernel adds them up over all CPUs.
      message.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
      if (ifindex == 0) message.put(IFLA_IFNAME, std::string_view(name));
      return message;
    }
    // Returns false for another netdev, such as one whose alternative name was requested.
    bool is_answer(const Netdev& netdev) const {
      return ifindex == 0 ? netdev.name == name : netdev.ifindex == ifindex;
    }
  };

  void want(const std::string& name, bool with_uppers) {
    // A longer name belongs to no netdev.
    if (name.empty() || name.size() >= IFNAMSIZ || has(requests_, name) || has(netdevs_, name)) return;
    requests_.push_back({name, 0, with_uppers});
  }

  void want(int ifindex, bool with_uppers) {
    if (ifindex <= 0 || has(requests_, ifindex) || has(netdevs_, ifindex)) return;
    requests_.push_back({{}, ifindex, with_uppers});
  }

  bool request_all_links() {
    while (!requests_.empty())
      if (requests_.size() + netdevs_.size() > kMost || !request_links()) return false;
    return true;
  }

  // Makes up to Socket::kMostQueries of the requests, and adds requests for the netdevs above the answers.
  bool request_links() {
    const std::size_t count = std::min(requests_.size(), Socket::kMostQueries);
    const std::vector<Request> sent(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<Query> queries;
    queries.reserve(sent.size());
    for (const Request& request : sent)
      queries.push_back(request.message());
    std::vector<std::optional<Netdev>> answers(count);
    const auto codes = socket_.request_all(
        queries, [&](std::size_t query, const Message& message) { answers[query] = parse_link(message); });
    if (!codes) return false;
    for (std::size_t i = 0; i < count; ++i) {
      if ((*codes)[i] == ENODEV) continue;
      if ((*codes)[i] != 0 || !answers[i] || !sent[i].is_answer(*answers[i])) return false;
      if (!add(std::move(*answers[i]), sent[i].with_uppers)) return false;
    }
    return true;
  }

  bool add(Netdev netdev, bool with_uppers) {
    if (has(netdevs_, netdev.ifindex)) return true;
    want(netdev.master_ifindex, with_uppers);
    netdevs_.push_back(std::move(netdev));
    if (!with_uppers || !wanted_.uppers_of) return true;
    const auto uppers = wanted_.uppers_of(netdevs_.back());
    for (const std::string& name : uppers.value_or(std::vector<std::string>()))
      want(name, true);
    return uppers.has_value();
  }

  // Requests the addresses of one netdev, or of all netdevs if `ifindex` is 0.
  bool request_addresses(int ifindex) {
    ifaddrmsg header{};
    header.ifa_index = static_cast<std::uint32_t>(ifindex);
    Query query(RTM_GETADDR, NLM_F_DUMP, header);
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
  if (wanted.names.size() + wanted.ifindexes.size() > kMost) return std::nullopt;
  auto socket = Socket::open(NETLINK_ROUTE);
  // With strict checks (Linux 4.20) the kernel refuses a request with a field or attribute that it would ignore, so
  // that a dump of the addresses of one netdev has no other addresses.
  if (!socket || !socket->turn_on(NETLINK_GET_STRICT_CHK)) return std::nullopt;
  Finder finder(std::move(*socket), wanted);
  if (!finder.find_links() || !finder.find_addresses()) return std::nullopt;
  return std::move(finder).take();
}

}  // namespace fabric::netlink
