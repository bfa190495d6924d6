// The report of rdma-ping as text, JSON and SVG. Pure.
#pragma once

#include <string>
#include <vector>

#include "init/ping/causes.hpp"
#include "init/ping/outcome.hpp"

namespace init::ping {

// Returns a summary line, the causes with their remedies, and a matrix of ranks whose cells show the worst rail. Above
// 64 ranks: the rows with failures only (at most 32), and a histogram of failures per rank.
std::string text_report(const Outcome& outcome, const std::vector<Cause>& causes);
// Returns one object; docs/ping.md describes it.
std::string json_report(const Outcome& outcome, const std::vector<Cause>& causes);
// Returns a heat map of ranks that is readable with 2 to 1,024 ranks, without external fonts, scripts or files.
std::string svg_report(const Outcome& outcome, const std::vector<Cause>& causes);

}  // namespace init::ping
