// RDMA_VISIBLE_DEVICES and MELLANOX_VISIBLE_DEVICES, in the words of enroot: all, none, void, or indices of the node's
// HCAs. An image sets its own environment, and NGC's have MELLANOX_VISIBLE_DEVICES=all in them.
#include "fabric/text.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

Result<Wish> parse_indices(std::string_view text, std::string source) {
  Wish wish;
  wish.kind = Wish::Kind::kList;
  wish.selectors.text = text;
  const auto entries = fabric::split(text, ',');
  if (entries.size() > kMaxListEntries) {
    return make_error("{}: a list of {} entries, at most {} are read", source, entries.size(), kMaxListEntries);
  }
  for (const std::string_view raw : entries) {
    const std::string_view entry = fabric::trim(raw);
    const auto index = fabric::parse_number<unsigned>(entry);
    if (!index) {
      fabric::Error error = make_error("{}: `{}` is no index", source, fabric::printable(entry.substr(0, 128)));
      error.hint = "all, none, void, or indices from 0 of the node's HCAs: 0,1";
      return error;
    }
    wish.selectors.selectors.push_back(
        {fabric::Selector::Kind::kIndex, fmt::format("index:{}", *index), std::nullopt, *index});
  }
  wish.source = std::move(source);
  return wish;
}

}  // namespace

Result<std::optional<Wish>> visible_devices(const ContainerSpec& spec) {
  for (const char* name : {"RDMA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"}) {
    const auto value = find_env(spec, name);
    if (!value) continue;
    const std::string source = std::string("variable ") + name;
    TRY_VOID(check_size(*value, source));
    const std::string_view text = fabric::trim(*value);
    if (text.empty()) continue;
    Wish wish;
    wish.source = source;
    if (text == "none" || text == "void") return std::optional(wish);
    if (text != "all") return std::optional<Wish>(TRY(parse_indices(text, source)));
    wish.kind = Wish::Kind::kAll;
    return std::optional(wish);
  }
  return std::optional<Wish>();
}

}  // namespace hook
