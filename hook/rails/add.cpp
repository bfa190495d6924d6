#include "hook/rails/add.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/warnings.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/netns_handle.hpp"
#include "hook/rails/place_rail.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

// Returns the number of the link group of a grant's children. The number depends only on the key, so that a later call
// finds the children, and is never 0, the default group of all netdevs.
std::uint32_t group_of(const std::string& key) {
  return static_cast<std::uint32_t>(checksum(key)) | 0x40000000U;
}

// The state and the steps of one call of add_rails().
class RailAdder {
 public:
  RailAdder(RailsInput& input, Timing& timing, NetworkRecordStore store, NodeSockets node, NetworkNamespace inside)
      : input_(&input),
        timing_(&timing),
        store_(std::move(store)),
        node_(std::move(node)),
        inside_(std::move(inside)) {}

  // The order matters. append_rails() refuses before the first change, and address_rails() records each change before
  // it is made. The test for duplicates needs a link that is up and has no address yet. The test of gateways needs
  // addresses and routes. GIDs come last, because the kernel makes them from the addresses.
  Result<RailsReport> add(NetworkRecord record, const Plan& plan) {
    record_ = std::move(record);
    first_new_ = record_.rails.size();
    if (!record_.handle)  // the record has no handle if an older version added rails before
      record_.handle = TRY(make_netns_handle(node_.route, node_.netns.get(), inside_.netns.get()));
    if (record_.handle->cookie == 0) record_.handle->cookie = netns_cookie(inside_.route.fd());
    TRY_VOID(append_rails(plan));
    TRY_VOID(address_rails());
    TRY_VOID(place());
    TRY_VOID(find_nodes());
    if (!input_->hurried) append(TRY(test_rails(Probe::Kind::kDuplicate, inside_, placed_)), report_.warnings);
    TRY_VOID(configure());
    if (!input_->hurried) append(TRY(test_rails(Probe::Kind::kGateway, inside_, placed_)), report_.warnings);
    timing_->step("tests");
    TRY_VOID(settle_gids());
    return std::move(report_);
  }

 private:
  Result<void> append_rails(const Plan& plan) {
    const NodeNetwork network = TRY(read_node_network(moves_any(plan)));
    auto rails = TRY(plan_rails(plan, input_->config, input_->inventory, network, first_new_));
    TRY_VOID(name_new_rails(rails));
    for (std::size_t i = 0; i < rails.size(); ++i) {
      RailRecord record;
      record.network = plan.netdevs[i].network;
      const auto booked = std::ranges::find(plan.hcas, plan.netdevs[i].hca, &PlannedHca::name);
      if (booked != plan.hcas.end()) record.device = booked->device;
      const Network* const options = find_network(input_->config, record.network);
      // describe_host() records the present values of the VF attributes that the network sets. take_addresses()
      // allocates the new values later, so that the present values are on record before any change.
      Rail described = rails[i];
      if (options && described.kind == RailKind::kMove) described.vf = set_attributes(*options);
      record.host = TRY(
          describe_host(node_, described, find_hca(input_->inventory, described.hca), input_->sys, report_.warnings));
      record.rail = std::move(rails[i]);
      if (options) record.rule_priority = options->rule_priority;
      record_.rails.push_back(std::move(record));
    }
    return {};
  }

  Result<void> name_new_rails(std::vector<Rail>& rails) {
    std::vector<std::string> taken;
    for (const Link& link : TRY(all_links(inside_.route)))
      taken.push_back(link.name);
    name_rails(input_->config.netdev_names, std::move(taken), rails);
    return {};
  }

  // Writes the record twice: before the first address or lease is allocated, and again before the first address is
  // configured. If the call is killed, the record therefore names everything that has to be released.
  Result<void> address_rails() {
    note_leases(input_->config, cni_args(input_->pod), record_);
    TRY_VOID(store_.write(record_));
    timing_->step("describe");
    TRY_VOID(take_addresses(input_->config, input_->ledger, input_->ledger_directory, input_->ipam, record_));
    TRY_VOID(store_.write(record_));
    timing_->step("addresses");
    return {};
  }

  Result<void> place() {
    for (std::size_t i = first_new_; i < record_.rails.size(); ++i) {
      RailRecord& rail = record_.rails[i];
      const int ifindex = TRY(place_rail(node_, inside_, rail, record_.group));
      if (rail.rail.kind != RailKind::kMove) rail.child = ifindex;
      placed_.push_back({&rail, find_network(input_->config, rail.network), ifindex});
    }
    timing_->step("links");
    for (const PlacedRail& rail : placed_) {
      TRY_VOID(bring_up(rail));
      TRY_VOID(recreate_inside(node_, inside_, *rail.record));
    }
    timing_->step("up");
    return {};
  }

  Result<void> bring_up(const PlacedRail& rail) {
    LinkChange change;
    // create_child() sets the MTU of a child. A moving netdev keeps the node's MTU unless the network sets one.
    if (rail.record->rail.kind == RailKind::kMove) change.mtu = rail.record->rail.mtu;
    if (rail.record->rail.kind != RailKind::kIpoib) change.arp = ArpSettings{};
    change.up = true;
    return change_link(inside_.route, rail.ifindex, change);
  }

  Result<void> configure() {
    std::vector<const Rail*> without;
    for (const PlacedRail& rail : placed_) {
      configs_.push_back(
          configure_rail(rail.record->rail, rail.ifindex, rail.record->rule_priority, rail.record->host.records));
      TRY_VOID(add_records(inside_.route, configs_.back().addresses));
      TRY_VOID(add_records(inside_.route, configs_.back().routes));
      if (addresses_in(configs_.back().addresses).empty()) without.push_back(&rail.record->rail);
    }
    if (auto warning = no_address_warning(without, input_->inventory)) report_.warnings.push_back(*std::move(warning));
    timing_->step("configure");
    return {};
  }

  // Finds the device nodes again: an RDMA device that is made again, or registered again in another namespace, gets the
  // first free uverbs number.
  Result<void> find_nodes() {
    const base::UniqueFd node_sysfs(::open(input_->sys.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    for (const PlacedRail& placed : placed_) {
      const Rail& rail = placed.record->rail;
      if (!rail.move_rdma && !rail.recreate) continue;
      const std::uint64_t guid = guid_on_record(*placed.record);
      auto found = inside_.sysfs.ok() ? find_uverbs(inside_.sysfs.get(), rail.hca, guid) : std::nullopt;
      // Before Linux 5.2 the sysfs of the container's namespace cannot be mounted, but the node's sysfs shows the
      // device.
      if (!found) found = find_uverbs(node_sysfs.get(), rail.hca, guid);
      if (!found)
        return Error{fmt::format("`{}` has no uverbs node in the container's network namespace", rail.hca), 0,
                     "check with `lsmod` that ib_uverbs is loaded, then create the container again"};
      report_.nodes.push_back(std::move(*found));
    }
    return {};
  }

  Result<void> settle_gids() {
    std::vector<GidRail> rails;
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      const auto address = gid_address(configs_[i]);
      const fabric::Hca* hca = find_hca(input_->inventory, placed_[i].record->rail.hca);
      if (!address || !hca || !placed_[i].network) continue;
      rails.push_back({placed_[i], hca, *address, configs_[i]});
    }
    // Aligning moves GIDs to other indices, which is safe only while no process can use a GID. Therefore rails are
    // aligned only before the first start, and only if no earlier call added rails.
    auto settled = TRY(settle_rail_gids(
        input_->ledger, inside_, rails,
        {.align = input_->before_first_start && first_new_ == 0, .wait = !input_->hurried, .sys = input_->sys}));
    append(std::move(settled.warnings), report_.warnings);
    report_.alignment = std::move(settled.alignment);
    for (const auto& [name, index] : settled.indices) {
      for (RailRecord& rail : record_.rails)
        if (rail.rail.name == name) rail.gid_index = index;
    }
    timing_->step("gids");
    return store_.write(record_);
  }

  RailsInput* input_;
  Timing* timing_;
  NetworkRecordStore store_;
  NodeSockets node_;
  NetworkNamespace inside_;
  NetworkRecord record_;
  std::size_t first_new_ = 0;        // index of the first rail of this call; earlier calls added the rails before it
  std::vector<PlacedRail> placed_;   // the new rails
  std::vector<RailConfig> configs_;  // the configuration of placed_, in the same order
  RailsReport report_;
};

NetnsParts parts_for(const RailsInput& input, const Plan& plan) {
  NetnsParts parts;
  for (const PlannedNetdev& netdev : plan.netdevs) {
    const Network* network = find_network(input.config, netdev.network);
    if (!network) continue;
    const bool tests = network->gateway_test != RailTest::kOff || network->duplicate_test != RailTest::kOff;
    parts.packet = parts.packet || (tests && !input.hurried);
    // Only the sysfs of the container's namespace shows an HCA that moved.
    parts.sysfs = parts.sysfs || netdev.mode == Mode::kExclusive;
  }
  return parts;
}

}  // namespace

bool moves_any(const Plan& plan) {
  return std::ranges::any_of(plan.netdevs, [](const PlannedNetdev& netdev) { return netdev.mode == Mode::kExclusive; });
}

Plan without_existing(const Plan& plan, const NetworkRecord& record) {
  Plan rest = plan;
  std::erase_if(rest.netdevs, [&](const PlannedNetdev& netdev) {
    return std::ranges::any_of(record.rails, [&](const RailRecord& rail) { return rail.rail.hca == netdev.hca; });
  });
  return rest;
}

Result<RailsReport> add_rails(RailsInput input, Timing& timing) {
  auto store = TRY(NetworkRecordStore::open(input.ledger_directory));
  NetworkRecord record = TRY(store.read(input.owner.key))
                             .value_or(NetworkRecord{input.owner.key, input.netns, group_of(input.owner.key), {}});
  const Plan rest = without_existing(input.plan, record);
  // Without a new rail the namespace is not entered, because that forks a child process.
  if (rest.netdevs.empty()) return RailsReport{};
  auto inside = TRY(open_network_namespace(std::move(input.netns_fd), parts_for(input, rest)));
  auto node = TRY(open_node_sockets());
  timing.step("namespace");
  return RailAdder(input, timing, std::move(store), std::move(node), std::move(inside)).add(std::move(record), rest);
}

}  // namespace hook
