#include "hook/config/node_slice.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/config/node_index.hpp"

namespace hook {
namespace {

using fabric::Address;

constexpr unsigned kAddressBits = 128;
constexpr unsigned kNumberBits = 64;

// Returns the number of bits in front of the address in its 128-bit form: 96 for IPv4, 0 for IPv6.
unsigned offset_of(const AddressRange& range) {
  return range.subnet.is_ipv4() ? kAddressBits - 32 : 0;
}

// Returns the number of bits of a slice's index. In an address they are the bits between `prefix` and `per_node`.
unsigned index_bits(const AddressRange& range) {
  return *range.per_node - range.prefix;
}

// Finds the bit of an address that is bit `from_last` (0: the lowest) of the index of the node's slice. Sets `byte` to
// the number of the address byte with this bit and returns the mask of the bit in that byte.
std::uint8_t mask_of(const AddressRange& range, unsigned from_last, std::size_t& byte) {
  const unsigned bit = offset_of(range) + *range.per_node - 1 - from_last;
  byte = bit / 8;
  return static_cast<std::uint8_t>(0x80U >> (bit % 8));
}

// Calls `note` for each range of a network that has no slice with this index.
void check_slices(const std::string& name, std::uint64_t index, const std::map<std::string, Network>& networks,
                  const std::function<void(const std::string&)>& note) {
  for (const auto& [network, of] : networks) {
    for (const AddressRange& range : of.ranges) {
      if (!range.per_node || index < slice_count(range)) continue;
      note(fmt::format("`{}`: network `{}`: {}/{} has {} slices of /{}, none with index {}", name, network,
                       to_string(range.subnet), range.prefix, slice_count(range), *range.per_node, index));
    }
    for (const auto* range : {&of.vf_macs, &of.vf_guids}) {
      if (!*range || !(*range)->per_node || index < slice_count(**range)) continue;
      note(fmt::format("`{}`: network `{}`: {} has {} slices of {}, none with index {}", name, network,
                       to_string(**range), slice_count(**range), *(*range)->per_node, index));
    }
  }
}

constexpr std::size_t kLongestShown = 64;

// Returns the words of a line without its comment.
std::vector<std::string> words_of(std::string_view line) {
  std::string text(line.substr(0, line.find('#')));
  // Tabs, and the carriage returns of other systems, count as blanks.
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\r'; }, ' ');
  std::vector<std::string> words;
  for (const std::string_view word : base::split(text, ' '))
    if (!word.empty()) words.emplace_back(word);
  return words;
}

// Returns whether the number at the end of a node's name is its index.
bool counts_last_number(const Config& config) {
  return !config.node_index || config.node_index->by == NodeIndex::By::kName;
}

// Returns the index that "node_index" gives to a node with this name; nullopt: it does not depend on the name.
std::optional<Result<std::uint64_t>> index_by_config(const std::optional<NodeIndex>& by, std::string_view name) {
  if (!by) return std::nullopt;
  if (by->by == NodeIndex::By::kNumber) return Result<std::uint64_t>(by->number);
  if (by->is_by_name()) return index_of_name(*by, name);
  return std::nullopt;
}

// Returns the index of the node on this line. words: at least one.
Result<std::uint64_t> index_of_line(const std::vector<std::string>& words, const Config& config) {
  const std::string name = base::shown(words[0], kLongestShown);
  std::optional<std::uint64_t> listed;
  if (words.size() == 2) listed = base::parse_number<std::uint64_t>(words[1]);
  if (words.size() > 2 || (words.size() == 2 && !listed))
    return make_error("`{}` has no index: expected a name, or a name and a number from 0", name);
  const auto by_config = index_by_config(config.node_index, words[0]);
  if (!by_config && listed) return *listed;
  if (!by_config && config.node_index)
    return make_error("`{}` has no index: \"node_index\" does not depend on the name, so the line needs a number",
                      name);
  auto index = by_config ? *by_config : index_of_name({NodeIndex::By::kName}, words[0]);
  if (index && listed && *listed != *index)
    return make_error("`{}` has index {} in the list, but {} by \"node_index\"", name, *listed, *index);
  return index;
}

std::string warning_of(const std::vector<std::string>& doubtful) {
  const std::string more = doubtful.size() == 1 ? "" : fmt::format(" and {} more names", doubtful.size() - 1);
  return fmt::format("`{}`{}: the last number is the index, and the numbers before it do not count", doubtful.front(),
                     more);
}

}  // namespace

Address next_address(Address address) {
  for (auto byte = address.bytes.rbegin(); byte != address.bytes.rend() && ++*byte == 0; ++byte) {
  }
  return address;
}

Address last_of(Address address, unsigned first_bit) {
  for (unsigned bit = first_bit; bit < kAddressBits; ++bit)
    address.bytes[bit / 8] |= static_cast<std::uint8_t>(0x80U >> (bit % 8));
  return address;
}

std::uint64_t slice_count(const AddressRange& range) {
  // A shift by 64 is undefined.
  return index_bits(range) >= kNumberBits ? UINT64_MAX : std::uint64_t{1} << index_bits(range);
}

std::optional<std::uint64_t> slice_with(const AddressRange& range, const Address& address) {
  if (address.family() != range.subnet.family() || fabric::masked(address, range.prefix) != range.subnet)
    return std::nullopt;
  std::uint64_t index = 0;
  for (unsigned i = 0; i < index_bits(range); ++i) {
    std::size_t byte = 0;
    const std::uint8_t mask = mask_of(range, i, byte);
    if ((address.bytes[byte] & mask) == 0) continue;
    // The index has more than 64 bits.
    if (i >= kNumberBits) return std::nullopt;
    index |= std::uint64_t{1} << i;
  }
  return index;
}

Result<AddressRange> slice_of(const AddressRange& range, std::uint64_t index) {
  const std::uint64_t count = slice_count(range);
  if (index >= count && index_bits(range) < kNumberBits)
    return Error{fmt::format("this node's index {} does not fit subnet {}/{}: it has {} slices of /{}", index,
                             to_string(range.subnet), range.prefix, count, *range.per_node),
                 ERANGE, "correct `node_index` (it counts from 0), or write a larger subnet or smaller slices"};
  AddressRange slice = range;
  slice.per_node.reset();
  Address first = range.subnet;
  for (unsigned i = 0; i < std::min(index_bits(range), kNumberBits); ++i) {
    std::size_t byte = 0;
    const std::uint8_t mask = mask_of(range, i, byte);
    if ((index >> i & 1) != 0) first.bytes[byte] |= mask;
  }
  // The first slice contains the subnet's network address, the last slice its broadcast address. `range` has neither,
  // so its limits remove both addresses from the slices.
  slice.from = std::max(first, range.from);
  slice.to = std::min(last_of(first, offset_of(range) + *range.per_node), range.to);
  return slice;
}

std::uint64_t slice_count(const VfRange& range) {
  const std::uint64_t span = range.to - range.from;  // number of values minus one, because 2^64 values do not fit
  const std::uint64_t whole = span / *range.per_node;
  const bool is_last_whole = span % *range.per_node == *range.per_node - 1 && whole < UINT64_MAX;
  return is_last_whole ? whole + 1 : whole;
}

Result<VfRange> slice_of(const VfRange& range, std::uint64_t index) {
  const std::uint64_t count = slice_count(range);
  if (index >= count)
    return Error{fmt::format("this node's index {} does not fit {}: it has {} slices of {}", index, to_string(range),
                             count, *range.per_node),
                 ERANGE, "correct `node_index` (it counts from 0), or write a larger range or smaller slices"};
  VfRange slice = range;
  slice.per_node.reset();
  slice.from = range.from + index * *range.per_node;
  slice.to = slice.from + (*range.per_node - 1);
  return slice;
}

NodeListCheck check_nodes(std::string_view list, const Config& config) {
  NodeListCheck check;
  std::map<std::uint64_t, std::string> seen;
  std::vector<std::string> doubtful;
  unsigned number = 0;
  bool has_node = false;
  const auto note = [&](const std::string& what) {
    check.problems.push_back(fmt::format("line {}: {}", number, what));
  };
  for (const std::string_view line : base::split(list, '\n')) {
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    has_node = true;
    const std::string name = base::shown(words[0], kLongestShown);
    const auto index = index_of_line(words, config);
    if (!index) {
      note(index.error().message);
      continue;
    }
    if (words.size() == 1 && counts_last_number(config) && has_several_numbers(words[0])) doubtful.push_back(name);
    // Two nodes with one index are the main error that this check exists for.
    if (const auto [other, is_new] = seen.emplace(*index, name); !is_new)
      note(fmt::format("`{}` and `{}` both have index {}: they would allocate the same addresses", other->second, name,
                       *index));
    check_slices(name, *index, config.networks, note);
  }
  if (!doubtful.empty()) check.warnings.push_back(warning_of(doubtful));
  // A list that a failed command wrote must not pass.
  if (!has_node) check.problems.emplace_back("the list has no node");
  for (const auto& [network, of] : config.networks) {
    for (const auto* range : {&of.vf_macs, &of.vf_guids}) {
      if (!*range || (*range)->per_node || seen.size() < 2) continue;
      check.problems.push_back(fmt::format(
          "network `{}`: {} has no `per_node`: each node would allocate the same values", network, to_string(**range)));
    }
  }
  return check;
}

}  // namespace hook
