#include "hook/admin/metrics/metrics.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/files.hpp"
#include "hook/oci/caller.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {
namespace {

// Escapes backslash and line break, and in label values the quote. Replaces control characters and invalid UTF-8.
std::string escape(std::string_view text, bool in_quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || (in_quotes && c == '"')) escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string_view(&c, 1);
  }
  return base::one_line(escaped);
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

// Returns the name for HELP and TYPE. The series _bucket, _sum and _count of a histogram are one metric.
std::string_view metric_of(const Sample& sample) {
  const std::string_view name = sample.name;
  return sample.type == Sample::Type::kHistogram ? name.substr(0, name.rfind('_')) : name;
}

const char* type_name(Sample::Type type) {
  if (type == Sample::Type::kHistogram) return "histogram";
  return type == Sample::Type::kCounter ? "counter" : "gauge";
}

// Returns the bound of a bucket as text with leading zeros, so that the order of texts is the order of numbers; "+Inf"
// comes last.
std::string bound_order(const Sample& sample) {
  const auto bound = sample.labels.find("le");
  if (bound == sample.labels.end() || bound->second == "+Inf") return "~";
  // The number of digits of the largest 64-bit number.
  constexpr std::size_t kDigits = 20;
  return std::string(kDigits - std::min(kDigits, bound->second.size()), '0') + bound->second;
}

bool is_before(const Sample& left, const Sample& right) {
  if (left.type != Sample::Type::kHistogram || left.name != right.name)
    return std::tie(left.name, left.labels) < std::tie(right.name, right.labels);
  Labels left_labels = left.labels;
  Labels right_labels = right.labels;
  left_labels.erase("le");
  right_labels.erase("le");
  // The buckets of one histogram must stay together, in the order of their bounds.
  return left_labels == right_labels ? bound_order(left) < bound_order(right) : left_labels < right_labels;
}

constexpr std::string_view kDurationName = "rdma_hook_stage_duration_microseconds";
constexpr std::string_view kBucket = "rdma_hook_stage_duration_microseconds_bucket";
constexpr std::string_view kSum = "rdma_hook_stage_duration_microseconds_sum";
constexpr std::string_view kDurationHelp = "Duration of each stage that granted HCAs, released HCAs or failed.";

// Bounds of the buckets in microseconds: from 1 ms, about the time of a grant of device nodes only, to 10 s, the
// timeout of the HCA locks.
constexpr std::array<std::uint64_t, 13> kBounds = {
    1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000};

// The last bucket is for values above all bounds.
using Buckets = std::array<std::uint64_t, kBounds.size() + 1>;

std::string bound_text(std::size_t bucket) {
  return bucket < kBounds.size() ? fmt::format("{}", kBounds[bucket]) : "+Inf";
}

struct Series {
  Buckets buckets{};
  std::uint64_t sum = 0;
};

// Adds a sample of the histogram to its series in `all`. Returns false for a sample of another metric.
bool take(const Sample& sample, std::map<Labels, Series>& all) {
  if (sample.name != kBucket && sample.name != kSum) return false;
  Labels labels = sample.labels;
  const auto bound = labels.extract("le");
  Series& series = all[labels];
  if (bound.empty()) {
    if (sample.name == kSum) series.sum += sample.value;
    return true;
  }
  const auto microseconds = base::parse_number<std::uint64_t>(bound.mapped());
  const auto* at = microseconds ? std::lower_bound(kBounds.begin(), kBounds.end(), *microseconds) : kBounds.end();
  series.buckets[static_cast<std::size_t>(at - kBounds.begin())] += sample.value;
  return true;
}

Sample make_sample(std::string_view suffix, Labels labels, std::uint64_t value) {
  return {.name = std::string(kDurationName) + std::string(suffix),
          .labels = std::move(labels),
          .type = Sample::Type::kHistogram,
          .help = std::string(kDurationHelp),
          .value = value};
}

void add_series(std::vector<Sample>& samples, const Labels& labels, const Series& series) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < series.buckets.size(); ++i) {
    total += series.buckets[i];
    Labels with_bound = labels;
    with_bound["le"] = bound_text(i);
    samples.push_back(make_sample("_bucket", std::move(with_bound), total));
  }
  samples.push_back(make_sample("_sum", labels, series.sum));
  samples.push_back(make_sample("_count", labels, total));
}

constexpr std::string_view kGrantInfo = "rdma_hook_grant_info";
constexpr std::string_view kPortCounter = "rdma_port_counter";

std::string head_of(std::string_view metric, std::string_view help, std::string_view type) {
  const std::string line = help.empty() ? "" : fmt::format("# HELP {} {}\n", metric, escape(help, false));
  return line + fmt::format("# TYPE {} {}\n", metric, type);
}

// Returns the lines of an HCA's ports.
std::string port_counters(const Directory& hca, const std::string& name) {
  std::string text;
  const auto ports = hca.open_at("ports");
  if (!ports) return text;
  for (const std::string& port : ports->list()) {
    // counters/ has the counters of the InfiniBand standard, hw_counters/ those of the driver.
    for (const char* group : {"counters", "hw_counters"}) {
      const auto directory = ports->open_at((port + "/" + group).c_str());
      if (!directory) continue;
      for (const std::string& counter : directory->list()) {
        if (counter == "lifespan") continue;  // skips a setting: the lifetime of hardware counters in ms
        // A driver may refuse the read of a counter. Such a counter is left out.
        const auto value = base::parse_number<std::uint64_t>(directory->read_text(counter.c_str()).value_or(""));
        if (value)
          append_line(text, {.name = std::string(kPortCounter),
                             .labels = {{"counter", counter}, {"hca", name}, {"port", port}},
                             .value = *value});
      }
    }
  }
  return text;
}

constexpr std::size_t kLongestUserId = 128;

// Returns the possible paths of a user's bundle: the recorded path, else the defaults of containerd 2.0 (state
// directory) and CRI-O 1.30 (run root).
std::vector<std::string> bundles_of(const GrantUser& user) {
  if (!user.bundle.empty()) return {user.bundle};
  if (!is_file_name(user.id, kLongestUserId)) return {};
  return {"/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + user.id,
          "/run/containers/storage/overlay-containers/" + user.id + "/userdata"};
}

// Returns the Kubernetes names in the bundle's config.json; nullopt: it does not exist or cannot be parsed.
std::optional<PodNames> read_names(const std::string& root, const std::string& bundle) {
  const auto text = read_bundle_config(root + bundle);
  const auto config = text ? parse_container_config(*text) : text.error();
  const auto spec = config ? read_container_spec(config->tree.root()) : config.error();
  if (!spec) return std::nullopt;
  // pod_identity() trusts the names only if the engine is one that Kubernetes uses.
  const Recognised caller = recognise({.bundle = bundle}, spec->cgroups_path);
  PodIdentity pod = pod_identity(*spec, caller.engine);
  return PodNames{std::move(pod.pod_namespace), std::move(pod.pod_name), std::move(pod.container_name)};
}

}  // namespace

std::vector<Increment> observed_stage(std::string_view stage, bool done, std::uint64_t microseconds) {
  Labels labels{{"stage", std::string(stage)}, {"result", done ? "done" : "failed"}};
  Labels bucket = labels;
  const auto* at = std::lower_bound(kBounds.begin(), kBounds.end(), microseconds);
  bucket["le"] = bound_text(static_cast<std::size_t>(at - kBounds.begin()));
  return {{kBucket, std::move(bucket)}, {kSum, std::move(labels), microseconds}};
}

std::vector<Sample> with_histograms(std::vector<Sample> counted) {
  std::map<Labels, Series> all;
  std::erase_if(counted, [&](const Sample& sample) { return take(sample, all); });
  for (const auto& [labels, series] : all)
    add_series(counted, labels, series);
  return counted;
}

std::string prometheus_text(std::vector<Sample> samples) {
  // The sort is stable, so that the first of equal samples stays.
  std::ranges::stable_sort(samples, is_before);
  const auto same = [](const Sample& a, const Sample& b) { return a.name == b.name && a.labels == b.labels; };
  samples.erase(std::unique(samples.begin(), samples.end(), same), samples.end());
  std::string text;
  std::string_view last;
  for (const Sample& sample : samples) {
    if (const auto metric = metric_of(sample); metric != last) {
      text += head_of(metric, sample.help, type_name(sample.type));
      last = metric;
    }
    append_line(text, sample);
  }
  return text;
}

void Held::add(const Grant& grant) {
  if (grant.owner.claim) ++claims_;
  for (const PlannedHca& hca : grant.hcas) {
    if (!hca.claim.empty()) continue;  // the claim's grant counts
    Sum& sum = sums_[{hca.name, hca.mode}];
    ++sum.grants;
    sum.units += hca.units;
    // Each grant records the limit of its time. config.json may have changed between two grants, so the limit of the
    // newest grant is shown.
    if (hca.limit && grant.since >= sum.limit_since) {
      sum.limit = hca.limit;
      sum.limit_since = grant.since;
    }
  }
}

std::vector<Sample> Held::samples() const {
  std::vector<Sample> samples;
  for (const auto& [of, sum] : sums_) {
    const Labels labels{{"hca", of.first}, {"mode", std::string(to_string(of.second))}};
    const auto add = [&](const char* name, const char* help, std::uint64_t value) {
      samples.push_back({.name = name, .labels = labels, .help = help, .value = value});
    };
    add("rdma_hook_holders", "Grants that hold an HCA.", sum.grants);
    add("rdma_hook_units", "Granted units of an HCA.", sum.units);
    if (sum.limit) add("rdma_hook_limit", "Unit limit of an HCA.", *sum.limit);
  }
  if (claims_ > 0)
    samples.push_back({.name = "rdma_hook_claims",
                       .help = "Claims of Kubernetes' Dynamic Resource Allocation with HCAs of this node.",
                       .value = claims_});
  return samples;
}

std::vector<std::string> Held::hcas() const {
  std::vector<std::string> names;
  for (const auto& [of, sum] : sums_) {
    // sums_ is sorted by HCA, so equal names are adjacent.
    if (names.empty() || names.back() != of.first) names.push_back(of.first);
  }
  return names;
}

std::vector<Sample> pool_samples(const std::vector<PoolCount>& pools) {
  std::vector<Sample> samples;
  for (const PoolCount& pool : pools)
    samples.push_back({.name = "rdma_hook_pool_missing",
                       .labels = {{"pool", pool.pool}},
                       .help = "Expected HCAs of a pool that are not usable.",
                       .value = pool.missing()});
  return samples;
}

PodNames GrantNames::of(const GrantUser& user) {
  for (const std::string& bundle : bundles_of(user)) {
    if (const auto known = known_.find(bundle); known != known_.end()) {
      known->second.is_used = true;
      return known->second.names;
    }
    auto names = read_names(root_, bundle);
    // A failed read is not stored in known_, because the bundle may become readable later.
    if (!names) continue;
    return known_.emplace(bundle, Known{*std::move(names)}).first->second.names;
  }
  return {};
}

void GrantNames::forget_others() {
  std::erase_if(known_, [](const auto& entry) { return !entry.second.is_used; });
  for (auto& [bundle, known] : known_)
    known.is_used = false;
}

std::string grant_info_head() {
  return head_of(kGrantInfo, "HCAs of each container.", type_name(Sample::Type::kGauge));
}

std::string grant_info(const Grant& grant, const NamesOf& names) {
  // One series per container and HCA. A container can be two users of a grant: rdma-nri books for a token before the
  // container exists, and createRuntime adds the container itself.
  std::map<std::string, PodNames> ids;
  for (const GrantUser& user : grant.users) {
    PodNames& known = ids[user.id];
    if (names && known == PodNames()) known = names(user);
  }
  if (ids.empty()) ids[""];  // a pod's grant without a running container still gets a series
  const Owner& owner = grant.owner;
  std::string text;
  for (const PlannedHca& hca : grant.hcas) {
    for (const auto& [id, pod] : ids) {
      Labels labels{{"container", id},
                    {"grant", shown_key(owner.key)},
                    {"hca", hca.name},
                    {"netns", owner.netns ? owner.netns->path : ""}};
      for (const auto& [label, value] : {std::pair<const char*, const std::string&>("namespace", pod.pod_namespace),
                                         {"pod", pod.pod},
                                         {"container_name", pod.container}})
        if (!value.empty()) labels.emplace(label, value);
      append_line(text, {.name = std::string(kGrantInfo), .labels = std::move(labels), .value = 1});
    }
  }
  return text;
}

void write_port_counters(const std::string& root, const std::vector<std::string>& hcas, const Write& write) {
  const auto devices = Directory::open(root + "/sys/class/infiniband");
  if (!devices) return;
  std::string head =
      head_of(kPortCounter, "The kernel's counter of an HCA's port; port_*_data counts units of 4 bytes.",
              type_name(Sample::Type::kCounter));
  for (const std::string& name : hcas) {
    // The name comes from a file of the ledger: as a path it must not lead out of the directory.
    const auto hca = is_file_name(name, kLongestHcaName) ? devices->open_at(name.c_str()) : std::nullopt;
    if (!hca) continue;
    const std::string text = port_counters(*hca, name);
    if (text.empty()) continue;
    // HELP and TYPE come once, before the first series.
    write(std::exchange(head, "") + text);
  }
}

Result<void> write_metrics(const std::string& ledger_directory, const Held& held, const std::string& root,
                           const Write& write) {
  std::vector<Sample> samples;
  if (const auto counters = Counters::open_to_read(ledger_directory)) {
    samples = with_histograms(TRY(counters.value().read()));
    // A missing file is no error (ENOENT): no call was counted since the node started.
  } else if (counters.error().code != ENOENT) {
    return counters.error();
  }
  for (Sample& sample : held.samples())
    samples.push_back(std::move(sample));
  write(prometheus_text(std::move(samples)));
  write_port_counters(root, held.hcas(), write);
  return {};
}

}  // namespace hook
