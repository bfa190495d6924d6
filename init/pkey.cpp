// The P_Key index of the chosen ports. NCCL uses one index for all ports (NCCL_IB_PKEY, 0 if it is not set), and a port
// may have the job's partition at another index.
#include <fmt/core.h>

#include "base/text.hpp"
#include "init/deciding.hpp"

namespace init {
namespace {

// Returns the index of the first P_Key with which the port is a full member, nullopt if it has none.
std::optional<std::size_t> full_member_at(const fabric::Port& port) {
  for (std::size_t index = 0; port.pkeys && index < port.pkeys->size(); ++index)
    if (port.pkey_at(index) > fabric::kFullMember) return index;
  return std::nullopt;
}

// Returns the problem of the P_Key index of a port: the index has no P_Key, or one of a limited member. Empty: none.
std::string pkey_problem(Deciding& d, std::size_t i, unsigned index) {
  const fabric::Port& port = *d.at(i).port;
  const std::string name = printable(d.at(i).name());
  if (!port.is_infiniband()) {
    // mlx5_query_port_roce() of drivers/infiniband/hw/mlx5/main.c and rxe_param.h, Linux 6.12.
    return index == 0 ? "" : fmt::format("{} is RoCE and has one P_Key, at index 0: no connection works", name);
  }
  const auto pkey = port.pkey_at(index);
  if (!port.pkeys || pkey > fabric::kFullMember) return {};
  d.decision.needs_full |= index >= port.pkeys->size();
  if (pkey.value_or(0) == 0)
    return fmt::format("{} has no P_Key at the index {}, and NCCL_IB_PKEY is an index: no connection works", name,
                       index);
  return fmt::format(
      "{} has the P_Key {:#x} at index {}: it is a limited member there, and two limited members cannot "
      "connect",
      name, *pkey, index);
}

// Returns the remedy for a wrong P_Key index: the index of a full member, if all ports have the same key there.
std::string pkey_remedy(const Deciding& d) {
  std::vector<std::string> indices;
  std::optional<std::size_t> common;
  bool same = true;
  for (const std::size_t i : d.choice.ports) {
    const fabric::Port& port = *d.at(i).port;
    const auto index = full_member_at(port);
    if (!index) return "make the ports full members of the job's partition in the subnet manager (opensm: `=full`)";
    same &= !common || *common == *index;
    common = index;
    indices.push_back(fmt::format("{} {} ({:#x})", printable(d.at(i).name()), *index, *port.pkey_at(*index)));
  }
  if (same)
    return fmt::format("set NCCL_IB_PKEY to {} ({:#x})", *common, *d.at(d.choice.ports[0]).port->pkey_at(*common));
  return "one NCCL_IB_PKEY does not fit all ports (" + base::join(indices, ", ") +
         "): choose ports with one index by --hca, or let the subnet manager put the key at index 0 (opensm: `indx0`)";
}

}  // namespace

void check_pkey(Deciding& d) {
  constexpr std::string_view kPkey = "NCCL_IB_PKEY";
  const unsigned index = d.kept.pkey_index();
  for (const std::size_t i : d.choice.ports) {
    std::string problem = pkey_problem(d, i, index);
    if (problem.empty()) continue;
    std::string remedy = d.at(i).port->is_infiniband() ? pkey_remedy(d) : "unset it";
    if (!d.kept.find(kPkey)) return d.warn("pkey", Verdict::kBad, std::move(problem), std::move(remedy));
    return d.kept.keep(kPkey, Problem{problem + "; " + remedy, Verdict::kBad}, "pkey");
  }
}

}  // namespace init
