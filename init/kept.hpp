// Values that the user or a configuration file has set. Such values are kept, checked, and reported if they are wrong.
// Pure.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "init/candidates.hpp"
#include "init/check.hpp"
#include "init/nccl_rules.hpp"
#include "init/settings.hpp"

namespace init {

// Variables of the rules with which NCCL chooses a GID, in the order family, range, version.
inline constexpr std::array<std::string_view, 3> kGidRuleNames = {"NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",
                                                                  "NCCL_IB_ROCE_VERSION_NUM"};

// The problem of a value in one line, and its effect on a job that uses the value.
struct Problem {
  std::string text;
  Verdict effect = Verdict::kNote;
};

// Returns the problem of a value of NCCL_IB_HCA: it selects no port, a port that it does not name, or a port that
// cannot work, or no port can match one of its entries.
std::optional<Problem> check_hca_list(std::string_view value, const std::vector<Candidate>& candidates,
                                      const nccl::Version& version);

// Returns the ports that the author of a value of NCCL_IB_HCA meant: blanks around an entry do not count, an entry that
// names a device means this device only, every entry counts, and an empty or invalid port is every port.
nccl::HcaList meaning_of(std::string_view value, const std::vector<Candidate>& candidates);

// Returns the GID index that UCX reads in UCX_IB_GID_INDEX: -1 for its own choice ("auto"), nullopt if UCX refuses the
// value. UCX reads the decimal digits at the beginning, so that 0x3 is 0 and 3,5 is 3. -1 is "inf", the highest number,
// which no port has as an index, and -2 is "auto".
// Source: openucx/ucx src/ucs/config/parser.c, 1.13 to 1.18; findings/ucx-gid-index-hex.sh.
std::optional<long> parse_ucx_index(const std::string& value);
inline constexpr long kHighestUcxIndex = std::numeric_limits<long>::max();

// Returns the problem of a fixed GID index on the chosen RoCE ports: the slot is empty, has type v1, belongs to another
// network namespace, or does not exist, or its GID is link-local although the port has a better one. unknown: set to
// true if a table was not read far enough to decide.
std::optional<Problem> check_gid_index(long index, const std::vector<const Candidate*>& ports, bool& unknown);

// Returns the problem of a value of NCCL_IB_ADDR_RANGE: to NCCL the range is another one than the text suggests, or
// none. rules: the value as NCCL reads it. roce: there are RoCE ports; NCCL 2.22.3 parses the value only for RoCE
// ports.
std::optional<std::string> check_range(std::string_view value, const nccl::GidRules& rules, bool roce);

// A numeric variable with the range that works. The libraries check none of these numbers, except NCCL the length of a
// prefix. Source: NVIDIA/nccl src/transport/net_ib/connect.cc, 2.18.3 to 2.30.7.
struct Number {
  const char* name;
  short lowest;  // -1: the default of NCCL since 2.26, and 255 before
  short highest;
  // The bits of the packet or of mlx5's queue pair for the number: a driver uses these bits of a number outside of the
  // range, or refuses it. 0: no connection works.
  unsigned char bits;
  const char*
      fallback;  // the default, which replaces a wrong value; nullptr: it depends on the version (see neutral_value())
};
// Returns the numbers that are checked.
std::span<const Number> numbers();
// Returns the number of a variable, nullptr if it is not checked.
const Number* find_number(std::string_view variable);
// Returns the problem of a number: no connection works with it, or another number than the value arrives. named:
// NCCL's version, if it is known.
std::optional<Problem> check_number(const Number& number, std::string_view value,
                                    const std::optional<nccl::Version>& named);

// The problem of a value in nccl.conf that an older NCCL reads with a CR at its end.
inline constexpr const char* kCrLf =
    "the line ends with CR LF, and NCCL before 2.30 treats the CR as part of the value; `sed -i 's/\\r$//'` removes it";

// Returns a neutral value, which replaces a wrong value under --override if no better value is exported. The neutral
// value is the library's default, but NCCL_IB_ADDR_FAMILY gets the wanted family, and NCCL_IB_ADDR_RANGE all its
// addresses. The variable is not unset, because NCCL would then read its configuration files. Returns an empty text for
// names without a neutral value. ipv6: the wanted family is IPv6. version: NCCL before 2.21 does not know the index -1.
std::string neutral_value(std::string_view name, bool ipv6, const nccl::Version& version);

// The values found so far, and whether each one will be in effect.
class Kept {
 public:
  // The arguments must outlive the object. override_wrong: exports replace values with a problem, but only variables of
  // the libraries in `exports`.
  Kept(const Settings& settings, bool override_wrong, const std::vector<std::string>& exports)
      : settings_(settings), override_wrong_(override_wrong), exports_(exports) {}

  const Setting* find(std::string_view name) const { return find_setting(settings_, name); }
  // Records the value with its problem, if the variable is set. A problem that is recorded stays. Adds kCrLf to the
  // problem of a value that ends with CR. cause: the stable
  // name of the problem.
  void keep(std::string_view name, std::optional<Problem> problem, std::string_view cause = "kept-value");
  // Records that no better value is known in place of a recorded one, so that it stays in effect.
  void hold(std::string_view name);
  // Records all other variables of the user that affect RDMA (is_related()), as values without a problem.
  void keep_related();

  // Returns true if --export includes the library.
  bool writes_for(std::string_view library) const;
  // Returns true if a wrong value of the variable may be replaced: with --override, or if an earlier run of rdma-init
  // exported it. Returns false for variables of libraries outside --export, and for values of the node
  // (Setting::of_node).
  bool may_replace(std::string_view name) const;
  // Returns true if a problem of the variable's value is recorded.
  bool is_wrong(std::string_view name) const;
  // Returns the user's value if it stays in effect, nullptr if rdma-init may set the variable.
  const Setting* in_effect(std::string_view name) const;
  // Returns the names of the variables that have a value and a recorded setting that passes the test.
  std::vector<std::string> names_if(const auto& test) const {
    std::vector<std::string> names;
    for (const auto& [name, setting] : settings_)
      if (!setting.value.empty() && test(setting)) names.push_back(name);
    return names;
  }
  // Returns the index that NCCL_IB_GID_INDEX fixes, nullopt if NCCL chooses.
  std::optional<unsigned> fixed_index() const;
  // Returns the index of P_Keys that NCCL uses: NCCL_IB_PKEY, of which 16 bits count.
  unsigned pkey_index() const;
  const Settings& settings() const { return settings_; }
  const Settings& values() const { return values_; }

 private:
  const Settings& settings_;
  bool override_wrong_;
  const std::vector<std::string>& exports_;
  Settings values_;
};

}  // namespace init
