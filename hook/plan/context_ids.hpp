// The contexts of one RDMA device, as ranges of ids. The kernel numbers contexts in order, so that 150,000 contexts are
// few ranges, and all of them fit into the record of a grant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

class ContextIds {
 public:
  ContextIds() = default;
  // ids: ascending.
  ContextIds(std::initializer_list<std::uint32_t> ids);

  // Adds an id (RdmaContext::id). Returns false and adds nothing unless it is larger than all ids so far.
  bool add(std::uint32_t id);
  bool contains(std::uint32_t id) const;
  bool empty() const { return ranges_.empty(); }
  std::size_t ranges() const { return ranges_.size(); }

  // Returns the ranges as text: "3,7-9".
  std::string text() const;
  // Parses the result of text(); nullopt: the text has another form, or its ids are not ascending.
  static std::optional<ContextIds> parse(std::string_view text);

  friend bool operator==(const ContextIds&, const ContextIds&) = default;

 private:
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  // Adds a range. Returns false and adds nothing unless its ids are larger than all ids so far.
  bool add(Range range);
  std::vector<Range> ranges_;  // ascending, with at least one id between two of them
};

}  // namespace hook
