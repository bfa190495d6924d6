#include "hook/metrics/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger_files.hpp"
#include "hook/metrics/histogram.hpp"

namespace hook {
namespace {

using fabric::Result;
using fabric::sysfs::Directory;

// Backslash and line break, in label values the quote too; of the rest what is UTF-8 and no control character.
std::string escape(std::string_view text, bool in_quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || (in_quotes && c == '"')) escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string_view(&c, 1);
  }
  return fabric::printable(escaped);
}

void append_line(std::string& text, const Sample& sample) {
  text += sample.name;
  char before = '{';
  for (const auto& [label, value] : sample.labels) {
    text += before + label + "=\"" + escape(value, true) + '"';
    before = ',';
  }
  if (!sample.labels.empty()) text += '}';
  text += fmt::format(" {}\n", sample.value);
}

// What HELP and TYPE are about: a histogram's series are one metric.
std::string_view metric_of(const Sample& sample) {
  const std::string_view name = sample.name;
  return sample.type == Sample::Type::kHistogram ? name.substr(0, name.rfind('_')) : name;
}

const char* to_string(Sample::Type type) {
  if (type == Sample::Type::kHistogram) return "histogram";
  return type == Sample::Type::kCounter ? "counter" : "gauge";
}

// A bucket's bound as text that sorts as the number does, as buckets have to be in order; "+Inf" comes last.
std::string bound_order(const Sample& sample) {
  const auto bound = sample.labels.find("le");
  if (bound == sample.labels.end() || bound->second == "+Inf") return "~";
  constexpr std::size_t kDigits = 20;
  return std::string(kDigits - std::min(kDigits, bound->second.size()), '0') + bound->second;
}

bool is_before(const Sample& left, const Sample& right) {
  if (left.type != Sample::Type::kHistogram || left.name != right.name) {
    return std::tie(left.name, left.labels) < std::tie(right.name, right.labels);
  }
  Labels left_labels = left.labels;
  Labels right_labels = right.labels;
  left_labels.erase("le");
  right_labels.erase("le");
  return left_labels == right_labels ? bound_order(left) < bound_order(right) : left_labels < right_labels;
}

struct PortCounter {
  std::string port;
  std::string name;
  std::uint64_t value = 0;
};

std::vector<PortCounter> read_port_counters(const Directory& hca) {
  std::vector<PortCounter> counters;
  const auto ports = hca.open_at("ports");
  if (!ports) return counters;
  for (const std::string& port : ports->list()) {
    for (const char* group : {"counters", "hw_counters"}) {
      const auto directory = ports->open_at((port + "/" + group).c_str());
      if (!directory) continue;
      for (const std::string& name : directory->list()) {
        if (name == "lifespan") continue;  // a setting: for how many milliseconds hardware counters are kept
        const auto text = directory->read_text(name.c_str());
        const auto value = text ? fabric::parse_number<std::uint64_t>(*text) : std::nullopt;
        if (value) counters.push_back({port, name, *value});
      }
    }
  }
  return counters;
}

// Each container of each grant that is not vanished with each of its HCAs. A grant that nobody uses yet has no
// container.
struct Use {
  const Grant* grant;
  std::string container;
  std::string hca;
};

std::vector<Use> list_uses(const std::vector<Grant>& grants) {
  std::vector<Use> uses;
  for (const Grant& grant : grants) {
    if (grant.vanished) continue;
    for (const PlannedHca& hca : grant.hcas) {
      if (grant.users.empty()) uses.push_back({&grant, "", hca.name});
      for (const GrantUser& user : grant.users)
        uses.push_back({&grant, user.id, hca.name});
    }
  }
  return uses;
}

}  // namespace

std::string prometheus_text(std::vector<Sample> samples) {
  std::stable_sort(samples.begin(), samples.end(), is_before);
  const auto same = [](const Sample& a, const Sample& b) { return a.name == b.name && a.labels == b.labels; };
  samples.erase(std::unique(samples.begin(), samples.end(), same), samples.end());
  std::string text;
  std::string_view last;
  for (const Sample& sample : samples) {
    if (const auto metric = metric_of(sample); metric != last) {
      if (!sample.help.empty()) text += fmt::format("# HELP {} {}\n", metric, escape(sample.help, false));
      text += fmt::format("# TYPE {} {}\n", metric, to_string(sample.type));
      last = metric;
    }
    append_line(text, sample);
  }
  return text;
}

std::vector<Sample> grant_samples(const std::vector<Grant>& grants) {
  std::map<std::string, std::set<const Grant*>> holders;
  std::vector<Sample> samples;
  for (const Use& use : list_uses(grants)) {
    holders[use.hca].insert(use.grant);
    const Owner& owner = use.grant->owner;
    samples.push_back({.name = "rdma_hook_grant_info",
                       .labels = {{"container", use.container},
                                  {"grant", owner.key},
                                  {"hca", use.hca},
                                  {"netns", owner.netns ? owner.netns->path : ""}},
                       .help = "Who has which HCA.",
                       .value = 1});
  }
  for (const auto& [hca, grants_of_it] : holders) {
    samples.push_back({.name = "rdma_hook_holders",
                       .labels = {{"hca", hca}},
                       .help = "Grants that hold an HCA.",
                       .value = grants_of_it.size()});
  }
  return samples;
}

std::vector<Sample> port_samples(const std::string& root, const std::vector<Grant>& grants) {
  std::vector<Sample> samples;
  const auto devices = Directory::open(root + "/sys/class/infiniband");
  if (!devices) return samples;
  std::map<std::string, std::vector<PortCounter>> read;
  for (const Use& use : list_uses(grants)) {
    const auto [found, fresh] = read.try_emplace(use.hca);
    if (fresh) {
      const auto hca = is_file_name(use.hca, kLongestHcaName) ? devices->open_at(use.hca.c_str()) : std::nullopt;
      if (hca) found->second = read_port_counters(*hca);
    }
    for (const PortCounter& counter : found->second) {
      samples.push_back({.name = "rdma_port_counter",
                         .labels = {{"container", use.container},
                                    {"counter", counter.name},
                                    {"grant", use.grant->owner.key},
                                    {"hca", use.hca},
                                    {"port", counter.port}},
                         .type = Sample::Type::kCounter,
                         .help = "A counter of an HCA's port as the kernel has it; port_*_data counts 4 bytes.",
                         .value = counter.value});
    }
  }
  return samples;
}

Result<std::string> metrics_text(const std::string& ledger_directory, const std::vector<Grant>& grants,
                                 const std::string& root) {
  std::vector<Sample> samples;
  if (const auto counters = Counters::open(ledger_directory)) {
    samples = with_histograms(TRY(counters.value().read()));
  } else if (counters.error().code != ENOENT) {
    return counters.error();
  }
  for (auto& more : {grant_samples(grants), port_samples(root, grants)})
    samples.insert(samples.end(), more.begin(), more.end());
  return prometheus_text(std::move(samples));
}

}  // namespace hook
