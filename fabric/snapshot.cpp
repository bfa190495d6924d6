#include "fabric/snapshot.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/text.hpp"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSnapshotSize = 64 << 20;
constexpr int kSnapshotTimeoutMs = 5000;
constexpr std::int64_t kSchema = 1;
// The limits of a snapshot bound the cost of the choice of ports, which compares every GID with every address and every
// HCA with every netdev. Real machines stay below the limits.
constexpr std::size_t kMaxDevices = 1024;
constexpr std::size_t kMaxPorts = 255;  // a port number is a byte in verbs
constexpr std::size_t kMaxGids = 4096;
constexpr std::size_t kMaxNetdevs = 4096;
constexpr std::size_t kMaxRoutes = 65536;
constexpr std::size_t kMaxAddresses = 4096;  // limit of the addresses of one netdev

// Returns true if the nesting stays within the limit. Destroying and printing a JSON value recurses, so the depth is
// checked before any value is built.
bool depth_within(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      // Skips an escaped character: an escaped quote does not end the string.
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

// A wrong JSON value: the expected form and the place. An empty `expected` means that the value is right.
struct Wrong {
  std::string expected;
  std::string place = {};  // where the value is: "[2].rate"
  explicit operator bool() const { return !expected.empty(); }

  template <typename Part>
  Wrong below(fmt::format_string<const Part&> format, const Part& part) const {
    return {expected, fmt::format(format, part) + place};
  }
};

// The form of a member in JSON. Plain stands for the default form of the member's type.
struct Plain {};

// The form of a member that is a list of objects: the list has at most so many elements.
struct AtMost {
  std::size_t entries = 0;
};

// The number of a slot in a GID table, at most 16 bits as in the kernel. Tables of today's drivers have 1 to 1,024
// slots; the limit bounds the cost of hostile input.
struct Slot {};

// A member that JSON represents as text.
template <typename T>
struct Text {
  const char* expected;
  std::optional<T> (*parse)(std::string_view text);
  Json (*print)(const T& value);
  bool counts = false;              // JSON numbers are accepted, too
  std::optional<T> minus_one = {};  // meaning of the number -1
};

constexpr Text<int> kErrnoName{"the name of an errno", errno_number,
                               [](const int& code) -> Json { return errno_name(code); }};
constexpr Text<Address> kGid{"a GID", parse_address, [](const Address& gid) -> Json { return to_gid_string(gid); }};

constexpr Text<NetnsMode> kMode{
    "\"shared\" or \"exclusive\"",
    [](std::string_view text) {
      return text == "shared"      ? std::optional(NetnsMode::kShared)
             : text == "exclusive" ? std::optional(NetnsMode::kExclusive)
                                   : std::nullopt;
    },
    [](const NetnsMode& mode) -> Json { return mode == NetnsMode::kShared ? "shared" : "exclusive"; }};

// Accepts the number of getrlimit(2), where -1 is unlimited, and the word "unlimited" of `ulimit`.
constexpr Text<std::uint64_t> kBytes{
    "bytes or \"unlimited\"",
    [](std::string_view text) {
      return text == "unlimited" || text == "-1" ? Limits::kUnlimited : parse_number<std::uint64_t>(text);
    },
    [](const std::uint64_t& bytes) { return bytes == Limits::kUnlimited ? Json("unlimited") : Json(bytes); }, true,
    Limits::kUnlimited};

// Accepts the hexadecimal mask in /proc/PID/status.
constexpr Text<std::uint64_t> kMask{
    "a number or a hexadecimal mask",
    [](std::string_view text) { return parse_number<std::uint64_t>(text.substr(text.starts_with("0x") ? 2 : 0), 16); },
    [](const std::uint64_t& mask) -> Json { return fmt::format("{:016x}", mask); }, true};

// Accepts the table names of ip-route(8).
constexpr Text<unsigned> kTable{
    "a number, \"main\", \"default\" or \"local\"",
    [](std::string_view text) {
      return text == "main" ? 254U : text == "default" ? 253U : text == "local" ? 255U : parse_number<unsigned>(text);
    },
    [](const unsigned& table) -> Json { return table; }, true};

constexpr std::pair<bool InterfaceAddress::*, std::string_view> kAddressFlags[] = {
    {&InterfaceAddress::tentative, "tentative"},
    {&InterfaceAddress::dad_failed, "dadfailed"},
    {&InterfaceAddress::deprecated, "deprecated"}};

// Reads or writes the members of an object. The describe() functions serve both directions, so that reading and writing
// cannot differ.
class Members {
 public:
  explicit Members(const Json* source) : source_(source) {}  // source: nullptr to write

  // Reads or writes one member. Reading: a missing or null key leaves the member unchanged, and after the first wrong
  // member no further member is read.
  template <typename T, typename Form = Plain>
  void operator()(const char* key, T& member, const Form& form = {}) {
    if (!source_) {
      written[key] = json_of(member, form);
    } else if (const Json* json = find(key)) {
      settle(key, take(*json, member, form));
    }
  }
  // If the list in JSON is null, it is read as an empty list: its writer knew that there are no entries.
  template <typename T, typename Form = Plain>
  void operator()(const char* key, std::optional<T>& member, const Form& form = {}) {
    if (source_ && (find(key) || (std::same_as<Form, AtMost> && source_->contains(key)))) member.emplace();
    if (member) (*this)(key, *member, form);
  }
  // Reads or writes a member that must be present and not empty.
  template <typename T, typename Form = Plain>
  void required(const char* key, T& member, const char* expected, const Form& form = {}) {
    (*this)(key, member, form);
    if (!source_) return;
    const Json* json = find(key);
    if (!json || (json->is_string() && json->get_ref<const std::string&>().empty())) settle(key, {expected});
  }
  // Reads or writes one member as operator() does, but writes null if the member has no value.
  template <typename T>
  void or_null(const char* key, std::optional<T>& member) {
    if (!source_) written[key] = nullptr;
    (*this)(key, member);
  }
  // Reading: sets the flag if the key is missing.
  void missing(const char* key, bool& flag) const {
    if (source_) flag = !source_->contains(key);
  }
  // Reading: sets the flag if the key is present and null. Writing: writes null if the flag is set.
  void null(const char* key, bool& flag) {
    if (source_) flag = source_->contains(key) && !find(key);
    if (!source_ && flag) written[key] = nullptr;
  }

  Wrong wrong;
  Json written = Json::object();

 private:
  const Json* find(const char* key) const {
    const auto found = source_->find(key);
    return wrong || found == source_->end() || found->is_null() ? nullptr : &*found;
  }
  void settle(const char* key, const Wrong& found) {
    if (found && !wrong) wrong = found.below(".{}", key);
  }

  const Json* source_;
};

// The describe() functions list every key of the format, in the order in which write_snapshot() writes the keys.
void describe(Members& members, GidEntry& entry) {
  members("index", entry.index, Slot{});
  members.required("gid", entry.gid, kGid.expected, kGid);
  members("type", entry.type);
  members.or_null("ndev", entry.ndev);
}

void describe(Members& members, Port& port) {
  members("port", port.number);
  members("state", port.state);
  members("phys_state", port.phys_state);
  members("link_layer", port.link_layer);
  members("rate", port.rate);
  members("lid", port.lid);
  members("sm_lid", port.sm_lid);
  members("pkeys", port.pkeys);
  members("gid_tbl_len", port.gid_tbl_len, Slot{});
  members("gids", port.gids, AtMost{kMaxGids});
}

void describe(Members& members, VerbsProvider& provider) {
  members.required("path", provider.path, "the provider's file");
  members.required("min", provider.min, "an ABI version");
  members.required("max", provider.max, "an ABI version");
}

void describe(Members& members, Hca& hca) {
  members.required("name", hca.name, "the device's name");
  members("node_guid", hca.node_guid);
  members("node_type", hca.node_type);
  members.or_null("pci", hca.pci);
  members("numa_node", hca.numa_node);
  members("driver", hca.driver);
  members("vendor", hca.vendor);
  members("device_id", hca.device_id);
  members("pci_class", hca.pci_class);
  members("physfn", hca.physfn);
  members("fw_ver", hca.fw_ver);
  members("parent", hca.parent);
  members.missing("uverbs", hca.uverbs_unknown);
  if (!hca.uverbs_unknown) members.or_null("uverbs", hca.uverbs);
  members("uverbs_dev", hca.uverbs_dev);
  members("accessible", hca.accessible);
  members("access_error", hca.access_error, kErrnoName);
  members("abi_version", hca.abi_version);
  members("provider", hca.provider);
  members("pci_path", hca.pci_path);
  members("ports", hca.ports, AtMost{kMaxPorts});
}

using Texts = std::map<std::string, std::string>;

// Returns what ADDRESS/PREFIX does not have, by address, in the order of ip-address(8). Only a label can have blanks,
// so it is last.
std::optional<Texts> address_attributes(const Netdev& netdev) {
  Texts texts;
  for (const InterfaceAddress& own : netdev.addresses) {
    std::string text = own.peer ? " peer " + to_string(*own.peer) : "";
    for (const auto& [flag, word] : kAddressFlags)
      if (own.*flag) text.append(" ").append(word);
    if (!own.label.empty()) text += " label " + own.label;
    if (!text.empty()) texts.emplace(own.text, text.substr(1));
  }
  return texts.empty() ? std::nullopt : std::optional(std::move(texts));
}

// Sets the members that address_attributes() describes. Other words have no effect.
void set_address_attributes(Netdev& netdev, const Texts& texts) {
  for (InterfaceAddress& own : netdev.addresses) {
    const auto found = texts.find(own.text);
    std::string_view rest = found == texts.end() ? std::string_view() : found->second;
    while (!rest.empty()) {
      const auto [word, after] = base::split_first(rest, ' ');
      rest = after;
      if (word == "label") {
        own.label = std::exchange(rest, {});
      } else if (word == "peer") {
        own.peer = parse_address(rest.substr(0, rest.find(' ')));
      }
      for (const auto& [flag, name] : kAddressFlags)
        own.*flag |= word == name;
    }
  }
}

void describe(Members& members, Netdev& netdev) {
  members.required("name", netdev.name, "the netdev's name");
  members("mac", netdev.mac);
  members("carrier", netdev.carrier);
  members("operstate", netdev.operstate);
  members.null("dev_id", netdev.dev_id_null);
  members("dev_id", netdev.dev_id);
  members("dev_port", netdev.dev_port);
  members("mtu", netdev.mtu);
  members("type", netdev.type);
  members("addresses", netdev.addresses, AtMost{kMaxAddresses});
  auto attributes = address_attributes(netdev);
  members("address_attributes", attributes);
  if (attributes) set_address_attributes(netdev, *attributes);
  members("in_this_netns", netdev.in_this_netns);
  members("pci", netdev.pci);
  members("master", netdev.master);
  members("slaves", netdev.slaves);
}

void describe(Members& members, Gpu& gpu) {
  members("pci", gpu.pci);
  members("numa_node", gpu.numa_node);
  members("pci_path", gpu.pci_path);
  members("uuid", gpu.uuid);
}

void describe(Members& members, Route& route) {
  members("dst", route.dst);
  members("dev", route.dev);
  members("table", route.table, kTable);
}

void describe(Members& members, Limits& limits) {
  members("memlock_soft", limits.memlock_soft, kBytes);
  members("memlock_hard", limits.memlock_hard, kBytes);
  members("cap_eff", limits.cap_eff, kMask);
  members("uid", limits.uid);
  members("initial_userns", limits.initial_userns);
}

void describe(Members& members, Inventory& inventory) {
  members("rdma_cm", inventory.rdma_cm);
  members("devices", inventory.hcas, AtMost{kMaxDevices});
  members("netdevs", inventory.netdevs, AtMost{kMaxNetdevs});
  members("gpus", inventory.gpus, AtMost{kMaxDevices});
  members("routes", inventory.routes, AtMost{kMaxRoutes});
  members("netns_mode", inventory.netns_mode, kMode);
  members("limits", inventory.limits);
  members("conf", inventory.conf);
  members("env", inventory.env);
}

// take() reads a value from JSON; json_of() writes it.
Wrong take(const Json& json, std::string& text, Plain) {
  if (!json.is_string()) return {"a string"};
  text = json.get_ref<const std::string&>();
  return {};
}

Wrong take(const Json& json, bool& flag, Plain) {
  if (!json.is_boolean()) return {"true or false"};
  flag = json.get<bool>();
  return {};
}

template <std::integral T>
Wrong take(const Json& json, T& number, Plain) {
  if (json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>())) {
    number = json.get<T>();
    return {};
  }
  return {fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max())};
}

Wrong take(const Json& json, unsigned& number, Slot) {
  std::uint16_t slot = 0;
  Wrong wrong = take(json, slot, Plain{});
  number = slot;
  return wrong;
}

template <typename T>
Wrong take(const Json& json, T& value, const Text<T>& form) {
  if (form.minus_one && json == -1) {
    value = *form.minus_one;
    return {};
  }
  if constexpr (std::integral<T>)
    if (form.counts && !json.is_string()) return take(json, value, Plain{});
  if (!json.is_string()) return {"a string"};
  auto parsed = form.parse(json.get_ref<const std::string&>());
  if (!parsed) return {form.expected};
  value = std::move(*parsed);
  return {};
}

template <typename T>
Wrong take(const Json& json, Attr<T>& attribute, Plain form) {
  // {"errno": "EINVAL"} stands for an attribute that the kernel refused to read.
  const Json* name = json.is_object() && json.contains("errno") ? &json["errno"] : nullptr;
  const auto code = name && name->is_string() ? errno_number(name->get_ref<const std::string&>()) : std::nullopt;
  if (code) {
    attribute = Unreadable{*code};
    return {};
  }
  Wrong wrong = take(json, attribute.template emplace<T>(), form);
  if (wrong && std::same_as<T, std::string>) wrong.expected += " or {\"errno\": NAME}";
  return wrong;
}

Wrong take(const Json& json, std::vector<std::string>& texts, Plain form) {
  if (!json.is_array()) return {"a list of strings"};
  for (const Json& item : json)
    if (const Wrong wrong = take(item, texts.emplace_back(), form)) return wrong.below("[{}]", texts.size() - 1);
  return {};
}

Wrong take(const Json& json, std::map<std::string, std::string>& texts, Plain form) {
  if (!json.is_object()) return {"an object of strings"};
  for (const auto& [name, item] : json.items())
    if (const Wrong wrong = take(item, texts[name], form)) return wrong.below(".{}", printable(name));
  return {};
}

Wrong take(const Json& json, std::vector<InterfaceAddress>& addresses, AtMost most) {
  std::vector<std::string> texts;
  if (Wrong wrong = take(json, texts, Plain{})) return wrong;
  for (const std::string& text : texts) {
    auto own = parse_interface_address(text);
    if (!own || (!own->prefix && text.find('/') != std::string::npos))
      return Wrong{"ADDRESS/PREFIX"}.below("[{}]", addresses.size());
    addresses.push_back(std::move(*own));
    if (addresses.size() > most.entries) return {fmt::format("at most {} entries", most.entries)};
  }
  return {};
}

template <typename T>
Wrong take(const Json& json, std::vector<T>& items, AtMost most) {
  if (!json.is_array()) return {"a list"};
  if (json.size() > most.entries) return {fmt::format("at most {} entries", most.entries)};
  for (const Json& item : json)
    if (const Wrong wrong = take(item, items.emplace_back(), Plain{})) return wrong.below("[{}]", items.size() - 1);
  return {};
}

template <typename T>
Wrong take(const Json& json, T& object, Plain) {
  if (!json.is_object()) return {"an object"};
  Members members(&json);
  describe(members, object);
  return members.wrong;
}

// A port without the key `state` counts as ACTIVE, so that a short snapshot works. A missing link layer or rate counts
// as an attribute that does not exist. GIDs are sorted by index, because the choice of a GID depends on table order.
Wrong take(const Json& json, Port& port, Plain form) {
  port.state = "4: ACTIVE";
  port.phys_state = "5: LinkUp";
  port.link_layer = port.rate = Unreadable{ENOENT};
  Wrong wrong = take<Port>(json, port, form);
  std::ranges::stable_sort(port.gids, {}, &GidEntry::index);
  return wrong;
}

Wrong take(const Json& json, Netdev& netdev, Plain form) {
  // A netdev without the key `carrier` counts as up.
  netdev.carrier = 1;
  return take<Netdev>(json, netdev, form);
}

template <typename T, typename Form>
Json json_of(T& value, const Form& form) {
  if constexpr (requires { form.print; }) {
    return form.print(value);
  } else if constexpr (std::same_as<Form, AtMost>) {
    Json list = Json::array();
    for (auto& item : value)
      list.push_back(json_of(item, Plain{}));
    return list;
  } else if constexpr (std::same_as<T, InterfaceAddress>) {
    return value.text;
  } else if constexpr (requires { std::get_if<Unreadable>(&value); }) {
    const auto* failed = std::get_if<Unreadable>(&value);
    return failed ? Json{{"errno", errno_name(failed->code)}} : Json(std::get<0>(value));
  } else if constexpr (requires(Members members) { describe(members, value); }) {
    Members members(nullptr);
    describe(members, value);
    return std::move(members.written);
  } else {
    return value;
  }
}

}  // namespace

Result<Inventory> parse_snapshot(std::string_view text) {
  if (!depth_within(text, kMaxSnapshotDepth)) return make_error("nested deeper than {} levels", kMaxSnapshotDepth);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("not valid JSON: {}", one_line(json_cause(error.what()))), EINVAL,
                 "pass the output of `rdma-init snapshot`"};
  }
  if (!json.is_object()) return make_error("expected a JSON object");
  Members members(&json);
  std::int64_t schema = kSchema;
  members("schema", schema);
  if (!members.wrong && schema != kSchema)
    return make_error("schema {} is not known, this version reads schema {}", schema, kSchema);
  Inventory inventory;
  if (json.contains("about")) inventory.about = json["about"].dump(-1, ' ', false, Json::error_handler_t::replace);
  describe(members, inventory);
  const Wrong& wrong = members.wrong;
  if (wrong) return make_error("{}: expected {}", wrong.place.substr(1), wrong.expected);
  return inventory;
}

Result<Inventory> read_snapshot(const std::string& path) {
  const auto refuse = [&](int code, const char* action) {
    Error error = sys_error(code, "{} snapshot `{}`", action, printable(path));
    error.hint = "pass a file that `rdma-init snapshot > FILE` wrote";
    return error;
  };
  const UniqueFd fd(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return refuse(errno, "open");
  if (path != "-") {
    // The path may be a pipe whose writer is slow or missing. poll() limits the wait.
    pollfd written{fd.get(), POLLIN, 0};
    if (::poll(&written, 1, kSnapshotTimeoutMs) == 0) return refuse(ETIMEDOUT, "read");
    // After the first byte, a read may block until the writer closes the pipe.
    ::fcntl(fd.get(), F_SETFL, 0);
  }
  const auto text = base::read_all(fd.get(), kMaxSnapshotSize);
  if (const int code = error_of(text); code != 0) return refuse(code, "read");
  auto inventory = parse_snapshot(std::get<std::string>(text));
  if (!inventory) return wrap(std::move(inventory).error(), fmt::format("snapshot `{}`", printable(path)));
  return inventory;
}

std::string write_snapshot(const Inventory& inventory) {
  Members members(nullptr);
  members.written["schema"] = kSchema;
  // Passes a string_view as parse_snapshot() does, because the parser's template for each further type of source is 14
  // kB of code.
  if (inventory.about) members.written["about"] = Json::parse(std::string_view(*inventory.about), nullptr, false);
  // The cast is safe, because describe() changes the object only when it reads.
  describe(members, const_cast<Inventory&>(inventory));
  // Names come from devices and images. Invalid UTF-8 is replaced, because dump() would throw.
  return members.written.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace fabric
