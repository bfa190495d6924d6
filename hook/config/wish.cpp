#include "hook/config/wish.hpp"

#include <algorithm>

#include "fabric/text.hpp"

namespace hook {

using fabric::make_error;
using fabric::Result;

Result<void> check_size(std::string_view value, std::string_view source) {
  if (value.size() <= kMaxValueBytes) return {};
  return make_error("{}: {} bytes, at most {} are read", source, value.size(), kMaxValueBytes);
}

Result<Wish> parse_wish(std::string_view text, std::string source) {
  TRY_VOID(check_size(text, source));
  text = fabric::trim(text);
  Wish wish;
  wish.source = std::move(source);
  const auto refuse = [&](std::string_view what) {
    fabric::Error error = make_error("{}: {}", wish.source, what);
    error.hint = "all, none, a count, or a list of HCAs: mlx5_0, netdev:NAME, pci:ADDRESS, rail:N, gpu";
    return error;
  };
  if (text.empty()) return refuse("it is empty");
  if (text == "none" || text == "void") return wish;
  if (text == "all") {
    wish.kind = Wish::Kind::kAll;
    return wish;
  }
  if (std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    const auto count = fabric::parse_number<unsigned>(text);
    if (!count || *count == 0 || *count > kMaxCount) {
      return refuse(
          fmt::format("`{}`: expected a count from 1 to {}", fabric::printable(text.substr(0, 32)), kMaxCount));
    }
    wish.kind = Wish::Kind::kCount;
    wish.count = *count;
    return wish;
  }
  const auto entries = static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')) + 1;
  if (entries > kMaxListEntries) {
    return refuse(fmt::format("a list of {} entries, at most {} are read", entries, kMaxListEntries));
  }
  auto selectors = fabric::parse_selectors(text, fabric::SelectorScope::kNode);
  if (!selectors) return refuse(std::move(selectors).error().message);
  wish.kind = Wish::Kind::kList;
  wish.selectors = *std::move(selectors);
  return wish;
}

}  // namespace hook
