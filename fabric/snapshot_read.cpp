#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "fabric/snapshot.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSnapshotSize = 64 << 20;
constexpr int kSchema = 1;
constexpr std::size_t kMaxDevices = 1024;
constexpr std::size_t kMaxPorts = 255;  // a port number is a byte in verbs
constexpr std::size_t kMaxGids = 4096;
constexpr std::size_t kMaxNetdevs = 4096;
constexpr std::size_t kMaxRoutes = 65536;
constexpr std::size_t kMaxAddresses = 4096;  // of one netdev

// Destroying and printing a JSON value recurses, so depth is bounded before anything is built.
bool depth_within(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

std::string place(const std::string& path, const char* key) {
  return path.empty() ? key : path + "." + key;
}

// Reads fields of objects and remembers the first thing that was wrong, with its place. After an error every read
// answers its default, so that callers need not check in between.
class Reader {
 public:
  const std::optional<Error>& error() const { return error_; }

  void fail(const std::string& path, std::string_view expected) {
    if (!error_) error_ = make_error("{}: expected {}", path, expected);
  }

  const Json* find(const Json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }

  std::optional<std::string> text(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    fail(place(path, key), "a string");
    return std::nullopt;
  }

  template <typename T>
  std::optional<T> number(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    if (value->is_number_unsigned() && std::in_range<T>(value->get<std::uint64_t>())) {
      return static_cast<T>(value->get<std::uint64_t>());
    }
    if (value->is_number_integer() && !value->is_number_unsigned() && std::in_range<T>(value->get<std::int64_t>())) {
      return static_cast<T>(value->get<std::int64_t>());
    }
    fail(place(path, key),
         fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    return std::nullopt;
  }

  // Bytes: a number or its digits; "unlimited" or -1, as getrlimit() and ulimit say it.
  std::optional<std::uint64_t> bytes(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
    if (value && *value == -1) return kUnlimited;
    if (!value || !value->is_string()) return number<std::uint64_t>(object, key, path);
    const auto text = value->get<std::string>();
    if (text == "unlimited" || text == "-1") return kUnlimited;
    const auto count = parse_number<std::uint64_t>(text);
    if (!count) fail(place(path, key), "bytes or \"unlimited\"");
    return count;
  }

  // A number, or the hexadecimal mask of /proc/PID/status.
  std::optional<std::uint64_t> mask(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || !value->is_string()) return number<std::uint64_t>(object, key, path);
    std::string_view text = value->get_ref<const std::string&>();
    if (text.starts_with("0x")) text.remove_prefix(2);
    const auto bits = parse_number<std::uint64_t>(text, 16);
    if (!bits) fail(place(path, key), "a number or a hexadecimal mask");
    return bits;
  }

  // A number, or a name of ip-route(8).
  unsigned route_table(const Json& object, const std::string& path) {
    const Json* value = find(object, "table");
    if (!value || !value->is_string()) return number<unsigned>(object, "table", path).value_or(254);
    const auto text = value->get<std::string>();
    if (text == "main") return 254;
    if (text == "default") return 253;
    if (text == "local") return 255;
    const auto table = parse_number<unsigned>(text);
    if (!table) fail(place(path, "table"), "a number, \"main\", \"default\" or \"local\"");
    return table.value_or(254);
  }

  std::optional<bool> boolean(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    fail(place(path, key), "true or false");
    return std::nullopt;
  }

  std::optional<std::vector<std::string>> texts(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    std::vector<std::string> strings;
    if (!value->is_array()) {
      fail(place(path, key), "a list of strings");
      return std::nullopt;
    }
    for (const Json& item : *value) {
      if (item.is_string()) {
        strings.push_back(item.get<std::string>());
      } else {
        fail(fmt::format("{}[{}]", place(path, key), strings.size()), "a string");
        return std::nullopt;
      }
    }
    return strings;
  }

  std::optional<std::map<std::string, std::string>> text_map(const Json& object, const char* key,
                                                             const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    std::map<std::string, std::string> map;
    if (!value->is_object()) {
      fail(place(path, key), "an object of strings");
      return std::nullopt;
    }
    for (const auto& [name, item] : value->items()) {
      if (!item.is_string()) {
        fail(fmt::format("{}.{}", place(path, key), printable(name)), "a string");
        return std::nullopt;
      }
      map[name] = item.get<std::string>();
    }
    return map;
  }

  // {"errno": "EINVAL"}
  std::optional<Unreadable> unreadable(const Json& value) {
    if (!value.is_object()) return std::nullopt;
    const Json* name = find(value, "errno");
    if (!name || !name->is_string()) return std::nullopt;
    const auto code = errno_number(name->get<std::string>());
    return code ? std::optional(Unreadable{*code}) : std::nullopt;
  }

  std::optional<Attr<std::string>> attribute(const Json& object, const char* key, const std::string& path) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    if (const auto failed = unreadable(*value)) return *failed;
    fail(place(path, key), "a string or {\"errno\": NAME}");
    return std::nullopt;
  }

  // Calls read(item, path) for each object of a list; a missing list is empty. What is far beyond any machine is
  // refused, since deciding compares GIDs with addresses and HCAs with netdevs.
  template <typename Read>
  void each(const Json& object, const char* key, const std::string& path, std::size_t limit, Read read) {
    const Json* value = find(object, key);
    if (!value || value->is_null()) return;
    if (!value->is_array()) return fail(place(path, key), "a list");
    if (value->size() > limit) return fail(place(path, key), fmt::format("at most {} entries", limit));
    std::size_t index = 0;
    for (const Json& item : *value) {
      const std::string item_path = fmt::format("{}[{}]", place(path, key), index++);
      if (!item.is_object()) return fail(item_path, "an object");
      read(item, item_path);
      if (error_) return;
    }
  }

 private:
  std::optional<Error> error_;
};

GidEntry read_gid(Reader& reader, const Json& json, const std::string& path) {
  GidEntry entry;
  entry.index = reader.number<std::uint16_t>(json, "index", path).value_or(0);
  const auto gid = parse_address(reader.text(json, "gid", path).value_or(""));
  if (!gid) reader.fail(path + ".gid", "a GID");
  entry.gid = gid.value_or(Address{});
  entry.type = reader.attribute(json, "type", path);
  entry.ndev = reader.attribute(json, "ndev", path);
  return entry;
}

Port read_port(Reader& reader, const Json& json, const std::string& path) {
  Port port;
  port.number = reader.number<unsigned>(json, "port", path).value_or(1);
  port.state = reader.attribute(json, "state", path).value_or("4: ACTIVE");
  port.phys_state = reader.attribute(json, "phys_state", path).value_or("5: LinkUp");
  port.link_layer = reader.attribute(json, "link_layer", path).value_or(Unreadable{ENOENT});
  port.rate = reader.attribute(json, "rate", path).value_or(Unreadable{ENOENT});
  port.lid = reader.text(json, "lid", path);
  port.sm_lid = reader.text(json, "sm_lid", path);
  // Tables have 1 to 1,024 slots in today's drivers; the bound keeps hostile input from costing time.
  if (const auto length = reader.number<std::uint16_t>(json, "gid_tbl_len", path)) port.gid_tbl_len = *length;
  reader.each(json, "gids", path, kMaxGids, [&](const Json& item, const std::string& item_path) {
    port.gids.push_back(read_gid(reader, item, item_path));
  });
  // Choosing relies on table order, whatever order the file has.
  std::stable_sort(port.gids.begin(), port.gids.end(),
                   [](const GidEntry& left, const GidEntry& right) { return left.index < right.index; });
  return port;
}

Hca read_hca(Reader& reader, const Json& json, const std::string& path) {
  Hca hca;
  hca.name = reader.text(json, "name", path).value_or("");
  if (hca.name.empty()) reader.fail(path + ".name", "the device's name");
  hca.node_guid = reader.text(json, "node_guid", path).value_or("");
  hca.node_type = reader.text(json, "node_type", path).value_or("");
  hca.pci = reader.text(json, "pci", path);
  hca.numa_node = reader.number<int>(json, "numa_node", path);
  hca.driver = reader.text(json, "driver", path);
  hca.vendor = reader.text(json, "vendor", path);
  hca.device_id = reader.text(json, "device_id", path);
  hca.pci_class = reader.text(json, "pci_class", path);
  hca.physfn = reader.text(json, "physfn", path);
  hca.fw_ver = reader.text(json, "fw_ver", path);
  hca.uverbs = reader.number<unsigned>(json, "uverbs", path);
  hca.uverbs_unknown = !reader.find(json, "uverbs");
  hca.uverbs_dev = reader.text(json, "uverbs_dev", path);
  hca.accessible = reader.boolean(json, "accessible", path);
  if (const auto name = reader.text(json, "access_error", path)) {
    hca.access_error = errno_number(*name);
    if (!hca.access_error) reader.fail(path + ".access_error", "the name of an errno");
  }
  hca.pci_path = reader.texts(json, "pci_path", path);
  reader.each(json, "ports", path, kMaxPorts, [&](const Json& item, const std::string& item_path) {
    hca.ports.push_back(read_port(reader, item, item_path));
  });
  return hca;
}

void read_addresses(Reader& reader, const Json& json, const std::string& path, Netdev& netdev) {
  for (const std::string& text : reader.texts(json, "addresses", path).value_or(std::vector<std::string>())) {
    const std::size_t slash = text.find('/');
    const auto address = parse_address(std::string_view(text).substr(0, slash));
    std::optional<unsigned> prefix;
    if (slash != std::string::npos) prefix = parse_number<unsigned>(std::string_view(text).substr(slash + 1));
    if (!address || (slash != std::string::npos && !prefix)) {
      return reader.fail(fmt::format("{}.addresses[{}]", path, netdev.addresses.size()), "ADDRESS/PREFIX");
    }
    netdev.addresses.push_back({*address, prefix, text});
    if (netdev.addresses.size() > kMaxAddresses) {
      return reader.fail(path + ".addresses", fmt::format("at most {} entries", kMaxAddresses));
    }
  }
}

Netdev read_netdev(Reader& reader, const Json& json, const std::string& path) {
  Netdev netdev;
  netdev.name = reader.text(json, "name", path).value_or("");
  if (netdev.name.empty()) reader.fail(path + ".name", "the netdev's name");
  netdev.mac = reader.text(json, "mac", path);
  netdev.carrier = 1;
  if (const Json* carrier = reader.find(json, "carrier"); carrier && !carrier->is_null()) {
    if (const auto failed = reader.unreadable(*carrier)) {
      netdev.carrier = *failed;
    } else {
      netdev.carrier = reader.number<int>(json, "carrier", path).value_or(1);
    }
  }
  netdev.operstate = reader.text(json, "operstate", path);
  const Json* dev_id = reader.find(json, "dev_id");
  netdev.dev_id_null = dev_id && dev_id->is_null();
  netdev.dev_id = reader.text(json, "dev_id", path);
  netdev.dev_port = reader.number<int>(json, "dev_port", path);
  netdev.mtu = reader.number<int>(json, "mtu", path);
  netdev.type = reader.number<int>(json, "type", path);
  read_addresses(reader, json, path, netdev);
  netdev.in_this_netns = reader.boolean(json, "in_this_netns", path);
  netdev.pci = reader.text(json, "pci", path);
  netdev.master = reader.text(json, "master", path);
  netdev.slaves = reader.texts(json, "slaves", path);
  return netdev;
}

void read_optional(Reader& reader, const Json& json, Inventory& inventory) {
  if (reader.find(json, "gpus")) {
    inventory.gpus.emplace();
    reader.each(json, "gpus", "", kMaxDevices, [&](const Json& item, const std::string& path) {
      inventory.gpus->push_back(Gpu{reader.text(item, "pci", path).value_or(""),
                                    reader.number<int>(item, "numa_node", path), reader.texts(item, "pci_path", path)});
    });
  }
  if (reader.find(json, "routes")) {
    inventory.routes.emplace();
    reader.each(json, "routes", "", kMaxRoutes, [&](const Json& item, const std::string& path) {
      inventory.routes->push_back(Route{reader.text(item, "dst", path).value_or(""),
                                        reader.text(item, "dev", path).value_or(""), reader.route_table(item, path)});
    });
  }
  if (const auto mode = reader.text(json, "netns_mode", "")) {
    if (*mode != "shared" && *mode != "exclusive") reader.fail("netns_mode", "\"shared\" or \"exclusive\"");
    inventory.netns_mode = *mode == "exclusive" ? NetnsMode::kExclusive : NetnsMode::kShared;
  }
  if (const Json* limits = reader.find(json, "limits"); limits && !limits->is_null()) {
    if (!limits->is_object()) return reader.fail("limits", "an object");
    inventory.limits =
        Limits{reader.bytes(*limits, "memlock_soft", "limits"), reader.bytes(*limits, "memlock_hard", "limits"),
               reader.mask(*limits, "cap_eff", "limits"), reader.number<unsigned>(*limits, "uid", "limits"),
               reader.boolean(*limits, "initial_userns", "limits")};
  }
  inventory.conf = reader.text_map(json, "conf", "");
  inventory.env = reader.text_map(json, "env", "");
}

}  // namespace

Result<Inventory> parse_snapshot(std::string_view text) {
  if (!depth_within(text, kMaxSnapshotDepth)) {
    return make_error("nested deeper than {} levels", kMaxSnapshotDepth);
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return make_error("not valid JSON: {}", printable(error.what()));
  }
  if (!json.is_object()) return make_error("expected a JSON object");
  Reader reader;
  const auto schema = reader.number<std::int64_t>(json, "schema", "").value_or(kSchema);
  if (!reader.error() && schema != kSchema) {
    return make_error("schema {} is not known, this version reads schema {}", schema, kSchema);
  }
  Inventory inventory;
  if (const Json* about = reader.find(json, "about")) {
    inventory.about = about->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  inventory.rdma_cm = reader.boolean(json, "rdma_cm", "");
  reader.each(json, "devices", "", kMaxDevices, [&](const Json& item, const std::string& path) {
    inventory.hcas.push_back(read_hca(reader, item, path));
  });
  reader.each(json, "netdevs", "", kMaxNetdevs, [&](const Json& item, const std::string& path) {
    inventory.netdevs.push_back(read_netdev(reader, item, path));
  });
  read_optional(reader, json, inventory);
  if (reader.error()) return *reader.error();
  return inventory;
}

Result<Inventory> read_snapshot(const std::string& path) {
  // Blocking: it may be a pipe whose writer is slow.
  const UniqueFd fd(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.ok()) return sys_error(errno, "open snapshot `{}`", printable(path));
  const auto text = sysfs::read_all(fd.get(), kMaxSnapshotSize);
  if (const auto* failed = std::get_if<Unreadable>(&text)) {
    return sys_error(failed->code, "read snapshot `{}`", printable(path));
  }
  auto inventory = parse_snapshot(std::get<std::string>(text));
  if (!inventory) return wrap(std::move(inventory).error(), fmt::format("snapshot `{}`", printable(path)));
  return inventory;
}

}  // namespace fabric
