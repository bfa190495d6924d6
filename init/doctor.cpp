#include "init/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fabric/text.hpp"
#include "init/decision_json.hpp"

namespace init {
namespace {

using fabric::printable;

const char* mark(Verdict verdict) {
  return verdict == Verdict::kGood ? "ok  " : verdict == Verdict::kNote ? "note" : "BAD ";
}

std::string ports_text(const Decision& decision) {
  std::size_t width = 0;
  for (const PortReport& port : decision.ports) {
    width = std::max(width, printable(port.device).size() + std::to_string(port.port).size() + 1);
  }
  std::string text = "\nPorts\n";
  for (const PortReport& port : decision.ports) {
    const std::string name = fmt::format("{}:{}", printable(port.device), port.port);
    text += fmt::format("  {:<{}}  {:<8}  {:<10} {:>5g} Gb/s  {}\n", name, width, port.used ? "used" : "not used",
                        printable(port.link_layer), port.rate_gbps, port.reason);
    if (!port.remedy.empty()) text += fmt::format("  {:<{}}  remedy: {}\n", "", width, port.remedy);
  }
  if (decision.ports.empty()) text += "  none\n";
  return text;
}

}  // namespace

std::string doctor_text(const Decision& decision, const std::vector<Check>& checks) {
  std::string text = fmt::format("rdma-init {}: this container is {} for RDMA\n\nChecks\n", RDMA_INIT_VERSION,
                                 is_fit(checks) ? "fit" : "NOT fit");
  for (const Check& check : checks) {
    text += fmt::format("  {}  {}\n", mark(check.verdict), check.message);
    if (!check.remedy.empty()) text += fmt::format("        remedy: {}\n", check.remedy);
  }
  text += ports_text(decision);
  text += "\nExported\n";
  for (const auto& [name, value] : decision.env)
    text += fmt::format("  {}={}\n", name, printable(value));
  if (decision.env.empty()) text += "  nothing\n";
  if (!decision.kept.empty()) text += "\nSet already\n";
  for (const auto& [name, value] : decision.kept) {
    text += fmt::format("  {}={} ({}){}\n", printable(name), printable(value.value), printable(value.source),
                        value.problem ? ": " + *value.problem : "");
  }
  return text;
}

std::string doctor_json(const Decision& decision, const std::vector<Check>& checks) {
  constexpr std::array kNames = {"good", "note", "bad"};
  nlohmann::ordered_json json;
  json["fit"] = is_fit(checks);
  json["checks"] = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    json["checks"].push_back({{"name", check.name},
                              {"verdict", kNames[static_cast<std::size_t>(check.verdict)]},
                              {"message", check.message},
                              {"remedy", check.remedy}});
  }
  const nlohmann::ordered_json decided = decision_json(decision);
  for (const auto& [key, value] : decided.items())
    json[key] = value;
  return dump_json(json);
}

}  // namespace init
