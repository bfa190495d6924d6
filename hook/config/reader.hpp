// Reads one text of the configuration. Each value keeps its place in the text for messages. Reading continues after a
// problem, so that one run reports all problems. Internal to hook/config.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.hpp"
#include "hook/config/config.hpp"

namespace hook {

class ConfigValue {
 public:
  ConfigValue(const Json* json, std::string pointer) : json_(json), pointer_(std::move(pointer)) {}
  const Json& json() const { return *json_; }
  const std::string& pointer() const { return pointer_; }  // "/pools/0/modes"

 private:
  const Json* json_;
  std::string pointer_;
};

// Returns the text as messages quote it: printable, at most 64 bytes.
inline std::string shown(std::string_view text) {
  return base::shown(text, 64);
}

// Returns a parser that accepts a text unchanged if the test is true.
inline auto if_is(bool (*is)(std::string_view)) {
  return [is](const std::string& text) { return is(text) ? std::optional(text) : std::nullopt; };
}

class ConfigReader {
 public:
  using Read = std::function<void(const ConfigValue&)>;
  struct Member {
    std::string_view name;
    Read read;
    bool known = true;  // false: the member is invalid, and `read` only reports the reason
  };
  using Readers = std::vector<Member>;

  // `text` and `problems` must outlive the reader.
  ConfigReader(const ConfigText& text, std::vector<ConfigProblem>& problems) : text_(&text), problems_(&problems) {}

  // Parses the text. Returns false and notes a problem if it is not a JSON object.
  bool parse_document();
  ConfigValue root() const { return {&json_, ""}; }

  // Calls the reader of each member. An unknown member is an error. Its remedy names the nearest known member, or all
  // of them. Skips "$schema" and "$comment".
  void members(const ConfigValue& object, const Readers& known);
  std::vector<ConfigValue> elements(const ConfigValue& list);
  // Returns name and value of each member of an object in which members can have any name.
  std::vector<std::pair<std::string, ConfigValue>> entries(const ConfigValue& object);
  // Returns the member; nullopt: missing.
  static std::optional<ConfigValue> find(const ConfigValue& object, const char* name);

  // The next three functions return the value. For another type, an empty text or a number out of range they note a
  // problem and return nullopt.
  std::optional<std::string> text(const ConfigValue& value);
  std::optional<std::uint64_t> number(const ConfigValue& value, std::uint64_t lowest, std::uint64_t highest);
  std::optional<bool> boolean(const ConfigValue& value);
  // Returns one of `words`. For any other text, notes a problem whose remedy names the nearest word, or all words.
  std::optional<std::string> word(const ConfigValue& value, const std::vector<std::string>& words);
  template <typename Value, std::size_t size>
  std::optional<Value> word(const ConfigValue& value, const Word<Value> (&words)[size]) {
    std::vector<std::string> texts;
    for (const auto& one : words)
      texts.emplace_back(one.word);
    const auto chosen = word(value, texts);
    return chosen ? from_word(words, *chosen) : std::nullopt;
  }
  // Returns parse(text). If this is nullopt, notes the problem "`TEXT` WRONG", with `wrong` for WRONG.
  auto parsed(const ConfigValue& value, auto parse, std::string_view wrong, const char* remedy) {
    const auto written = text(value);
    auto result = written ? parse(*written) : std::nullopt;
    if (written && !result) error(value, fmt::format("`{}` {}", shown(*written), wrong), remedy);
    return result;
  }
  // Reads a list of texts into target; a duplicate is an error.
  void texts(const ConfigValue& list, std::vector<std::string>& target,
             const std::function<std::optional<std::string>(const ConfigValue&)>& read);

  // Each of the next functions returns a reader of one member. The reader sets the target, or notes a problem and
  // leaves the target unchanged.
  template <typename Target>
  Read into(Target& target, void (*read)(ConfigReader&, const ConfigValue&, Target&)) {
    return [this, &target, read](const ConfigValue& value) { read(*this, value, target); };
  }
  Read flag_into(auto& target) {
    return [this, &target](const ConfigValue& value) { set(target, boolean(value)); };
  }
  Read number_into(auto& target, std::uint64_t lowest, std::uint64_t highest) {
    return [this, &target, lowest, highest](const ConfigValue& value) {
      if (const auto wide = number(value, lowest, highest)) target = static_cast<unsigned>(*wide);
    };
  }
  template <typename Target, typename Value, std::size_t size>
  Read word_into(Target& target, const Word<Value> (&words)[size]) {
    return [this, &target, &words](const ConfigValue& value) { set(target, word(value, words)); };
  }
  Read text_into(auto& target, auto parse, std::string_view wrong, const char* remedy) {
    return [this, &target, parse, wrong, remedy](const ConfigValue& value) {
      set(target, parsed(value, parse, wrong, remedy));
    };
  }
  // A list replaces the content of the target. Duplicates are errors, except in a list of words.
  Read texts_into(std::vector<std::string>& target, auto parse, std::string_view wrong, const char* remedy) {
    return [this, &target, parse, wrong, remedy](const ConfigValue& list) {
      texts(list, target, [&](const ConfigValue& element) { return parsed(element, parse, wrong, remedy); });
    };
  }
  Read words_into(std::vector<std::string>& target, std::vector<std::string> words);

  void error(const ConfigValue& value, const std::string& message, std::string remedy);
  void warning(const ConfigValue& value, const std::string& message, std::string remedy);
  // Returns the line of a value by its JSON pointer; nullopt: the text does not have it.
  std::optional<unsigned> line_of(const std::string& pointer) const;
  const std::string& file() const { return text_->file; }

 private:
  template <typename Target, typename Value>
  static void set(Target& target, const std::optional<Value>& value) {
    if (value) target = *value;
  }
  void note(const ConfigValue& value, const std::string& message, std::string remedy, bool is_error);

  const ConfigText* text_;
  std::vector<ConfigProblem>* problems_;
  Json json_;
  // Computed at the first problem: a configuration without problems needs no second pass.
  mutable std::optional<JsonLines> lines_;
};

// Reads a text into config, over its present content: lists are replaced; networks, and members of "nodes", "runtime",
// "nri" and "device_plugin", are replaced one by one. Problems are noted in the reader.
void read_config_members(ConfigReader& reader, Config& config);
// Each of these functions reads one member of the configuration. `ranges` belong to one network.
void read_pools(ConfigReader& reader, const ConfigValue& value, std::vector<Pool>& pools);
void read_networks(ConfigReader& reader, const ConfigValue& value, std::map<std::string, Network>& networks);
void read_rails(ConfigReader& reader, const ConfigValue& value, std::vector<RailEntry>& rails);
// Reads "env" of a pool or a network.
void read_env(ConfigReader& reader, const ConfigValue& value, SiteValues& values);
// Reads "vf" of a network.
void read_vf(ConfigReader& reader, const ConfigValue& value, Network& network);
void read_addresses(ConfigReader& reader, const ConfigValue& value, std::vector<AddressRange>& ranges);

// Notes an error for each key that only a node's own files may have. Returns whether there is one.
//
// A user that may edit the cluster's ConfigMap decides which containers get which HCAs. This right must not suffice to
// become root on the nodes or to disconnect them. The refused keys name programs that root executes, directories and
// files that root trusts or writes, or can take the node off the network:
//
//   runtime                   runtimes and a hook; the engine, and so the trust in annotations; seccomp
//   networks.NAME.ipam        a program that root executes, and its input: host-local's dataDir and whereabouts'
//                             log_file are paths that it writes. Accepted if "ipam_allowed" of the node has the
//                             plugin, with members that select addresses only
//   ipam_allowed              the plugins of the line above
//   networks.NAME.ipam_dir    the directory of that program
//   networks.NAME.take_node_netdevs  moves the netdev of the node's default route, sshd or kubelet into a container
//   pools.*.env, networks.NAME.env   other names than fabric::is_wire_variable(): some variables name libraries that
//                             every container would load, or files that it would write
//   lend_from                 a directory of libraries that every container of the pool executes
//   topology_file             a file of the node that every container can read
//   node_index, as a path     except a file directly in /etc/rdma-init, where only root writes
//   node_index, as a number   no program, but every node would allocate the same addresses
//
// No other key of config.json is a path or a program (tests/unit/hook/admin/cluster/apply_config_test.cpp checks the
// schema).
// ipam_allowed: "ipam_allowed" of the node's own files.
bool refuse_node_keys(ConfigReader& reader, const std::vector<std::string>& ipam_allowed = {});

// Problem and remedy of a name that is_config_name() refuses.
inline constexpr const char* kNoName = "is not a valid name";
inline constexpr const char* kNameRemedy = "write 1 to 63 of the characters A-Z a-z 0-9 _ . -";

}  // namespace hook
