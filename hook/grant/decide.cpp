#include "hook/grant/decide.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "fabric/read_node.hpp"
#include "fabric/snapshot.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr const char* kOwnNetns = "/proc/self/ns/net";

std::optional<NetnsIdentity> identify_netns(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return NetnsIdentity{status.st_dev, status.st_ino, path};
}

bool is_nodes_own(const NetnsIdentity& netns) {
  const auto own = identify_netns(kOwnNetns);
  return own && own->dev == netns.dev && own->ino == netns.ino;
}

// The HCAs of the uverbs nodes that the container has already; nullopt: one of them belongs to none.
std::optional<std::vector<std::string>> hcas_of_given_nodes(const Request& request, const std::string& root) {
  std::vector<std::string> names;
  for (const SpecDevice& device : request.given) {
    constexpr std::string_view kUverbs = "/dev/infiniband/uverbs";
    const auto number = device.path.starts_with(kUverbs)
                            ? fabric::parse_number<unsigned>(std::string_view(device.path).substr(kUverbs.size()))
                            : std::nullopt;
    const auto name = number ? fabric::hca_of_uverbs(root, *number) : std::nullopt;
    if (!name) return std::nullopt;  // make_plan() says what is wrong with it, once it knows the node
    names.push_back(*name);
  }
  return names;
}

// nullopt: it can be about any HCA.
std::optional<std::vector<std::string>> names_to_read(const Request& request, const std::string& root) {
  auto given = hcas_of_given_nodes(request, root);
  if (!given || request.given_is_the_grant || request.wish.kind == Wish::Kind::kNone) return given;
  auto named = named_hcas(request);
  if (!named) return named;
  for (std::string& name : *given) {
    if (std::find(named->begin(), named->end(), name) == named->end()) named->push_back(std::move(name));
  }
  return named;
}

// Whether a container asks under some configuration, other than by "default_devices".
bool could_ask(const ContainerSpec& spec, Engine engine) {
  Config trusting;
  trusting.annotations_may_request = {"*"};
  const auto asked = parse_request(spec, trusting, engine);
  return !asked || asked->request;
}

// Whether some HCA would be held in that mode.
bool may_be(Mode mode, const Request& request, const Config& config) {
  if (request.mode) return request.mode == mode;
  const auto network_is = [&](const auto& entry) { return entry.second.mode == mode; };
  const auto pool_is = [&](const Pool& pool) { return !pool.modes.empty() && pool.modes.front() == mode; };
  return std::any_of(config.networks.begin(), config.networks.end(), network_is) ||
         std::any_of(config.pools.begin(), config.pools.end(), pool_is);
}

// Rails are numbered among all HCAs of the node, and a pool can be a matter of netdevs.
bool needs_whole_node(const Request& request, const Config& config) {
  const bool pool_network =
      std::any_of(config.pools.begin(), config.pools.end(), [](const Pool& pool) { return pool.network.has_value(); });
  return request.network || pool_network || !request.narrowed_by.empty();
}

// Whether pools tell HCAs apart.
bool pools_select(const Config& config) {
  return std::any_of(config.pools.begin(), config.pools.end(),
                     [](const Pool& pool) { return !(pool.selectors == PoolSelectors{}); });
}

std::map<std::string, unsigned> largest_limits(const std::vector<std::string>& names, const Request& request,
                                               const Config& config) {
  unsigned largest = may_be(Mode::kExclusive, request, config) ? 1 : 0;
  for (const Pool& pool : config.pools) {
    for (const auto& [mode, limit] : pool.limits)
      largest = std::max(largest, limit);
  }
  std::map<std::string, unsigned> limits;
  for (const std::string& name : names)
    limits[name] = largest;
  return limits;
}

}  // namespace

Result<std::string> read_bundle_config(const std::string& bundle) {
  auto text = read_text_file(bundle + "/config.json");
  if (text) return text;
  fabric::Error error = fabric::wrap(std::move(text).error(), "the container's bundle");
  // Tried: 1.8.1, with a user namespace and linux.devices.
  error.hint = "a bundle is the directory that holds config.json";
  if (bundle == "/") error.hint = "this crun does not say where the bundle is: use a later one, or runc";
  return error;
}

Result<Container> understand(const std::string& config_text, const Options& options) {
  Json config = TRY(parse_json(config_text, "the container's config.json"));
  ContainerSpec spec = TRY(read_container_spec(config));
  Container container = TRY(understand_spec(std::move(spec), read_config(options.config), options.engine));
  container.config = std::move(config);
  return container;
}

Result<Container> understand_spec(ContainerSpec spec, Result<Config> admin, Engine engine) {
  Container container;
  container.spec = std::move(spec);
  if (!admin && !could_ask(container.spec, engine)) {
    // A slip in config.json must not stop the containers that have nothing to do with it.
    container.asked.warnings.push_back(admin.error().message);
    return container;
  }
  container.admin = TRY(std::move(admin));
  container.asked = TRY(parse_request(container.spec, container.admin, engine));
  return container;
}

Result<fabric::Inventory> read_node_for(const Request& request, const Config& config, const Options& options) {
  if (options.snapshot) return fabric::read_snapshot(*options.snapshot);
  fabric::NodeReadOptions read;
  read.root = options.root;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.gids = may_be(Mode::kSharedMulti, request, config);  // which bounds the children of an HCA
  if (!needs_whole_node(request, config)) {
    read.hcas = names_to_read(request, options.root);
    read.details = !read.hcas;
    // A device plugin may name HCAs by their netdevs (match_given.cpp).
    read.selectors = read.details || read.gids || pools_select(config) || !request.order.empty();
  }
  // Whoever names its HCAs gets these, near to its GPUs or not.
  read.gpus = read.details && (!request.gpu_nodes.empty() || request.gpu_hint);
  auto inventory = fabric::read_node(read);
  const auto known = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  // A name that does not exist: the refusal says what does.
  if (read.hcas && !std::all_of(read.hcas->begin(), read.hcas->end(), known)) {
    read.hcas.reset();
    read.details = read.selectors = true;
    inventory = fabric::read_node(read);
  }
  return inventory;
}

Result<fabric::Inventory> read_whole_node(const Config& config, const Options& options) {
  if (options.snapshot) return fabric::read_snapshot(*options.snapshot);
  fabric::NodeReadOptions read;
  read.root = options.root;
  read.mad_nodes = config.nodes.umad || config.nodes.issm;
  read.gpus = true;
  return fabric::read_node(read);
}

Owner owner_of(const ContainerSpec& spec, Owner otherwise) {
  const auto netns = spec.netns_path ? identify_netns(*spec.netns_path) : std::nullopt;
  return netns && !is_nodes_own(*netns) ? netns_owner(*netns) : std::move(otherwise);
}

bool uses_host_network(const ContainerSpec& spec) {
  if (!spec.has_netns) return true;
  const auto netns = spec.netns_path ? identify_netns(*spec.netns_path) : std::nullopt;
  return netns && is_nodes_own(*netns);
}

Result<Plan> decide(const Container& container, const fabric::Inventory& inventory, const Ledger* ledger,
                    const Owner& owner, const GrantUser& user, bool book) {
  const Request& request = *container.asked.request;
  const std::string view = ledger ? ledger->view_directory(user.key) : std::string(kLedgerPath) + "/views/" + user.key;
  const bool host_network = uses_host_network(container.spec);
  const auto plan_with = [&](const Holdings& holdings) {
    return make_plan({inventory, request, container.admin, holdings, view, host_network});
  };
  if (!ledger) return plan_with({});
  const auto names = candidates(inventory, request, container.admin);
  auto locked = TRY(ledger->lock(names));
  const Holdings holdings = TRY(locked.holdings(owner, largest_limits(names, request, container.admin)));
  auto plan = TRY(plan_with(holdings));
  std::vector<PlannedHca> held = plan.hcas;
  held.insert(held.end(), plan.also_open.begin(), plan.also_open.end());
  if (book && !held.empty()) TRY_VOID(locked.book(owner, held, user));
  return plan;
}

}  // namespace hook
