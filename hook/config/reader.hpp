// Reads one text of the configuration: every value knows its place, and what is wrong is noted and read over, so that
// one run shows everything. Internal to hook/config*.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/json/json.hpp"
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

// What a message quotes of a value.
inline std::string shown(std::string_view text) {
  return shown(text, 64);
}

// The parser of a text that only has to pass a test: it gives the text as it is.
inline auto if_is(bool (*is)(std::string_view)) {
  return [is](const std::string& text) { return is(text) ? std::optional(text) : std::nullopt; };
}

class ConfigReader {
 public:
  using Read = std::function<void(const ConfigValue&)>;
  struct Member {
    std::string_view name;
    Read read;
    bool known = true;  // false: only read to say what is wrong with it
  };
  using Readers = std::vector<Member>;

  // Both have to outlive it.
  ConfigReader(const ConfigText& text, std::vector<ConfigProblem>& problems) : text_(&text), problems_(&problems) {}

  // False, with a problem noted, when the text is no JSON object.
  bool parse_document();
  ConfigValue root() const { return {&json_, ""}; }

  // Calls the reader of each member that is there. Unknown members are errors that name the nearest known one, but
  // "$schema" and "$comment" are passed over.
  void members(const ConfigValue& object, const Readers& known);
  std::vector<ConfigValue> elements(const ConfigValue& list);
  // Name and value of each member of an object whose names are free.
  std::vector<std::pair<std::string, ConfigValue>> entries(const ConfigValue& object);
  // nullopt: it is not there.
  static std::optional<ConfigValue> find(const ConfigValue& object, const char* name);

  // nullopt, with a problem noted, for a value of another type or an empty text.
  std::optional<std::string> text(const ConfigValue& value);
  std::optional<std::uint64_t> number(const ConfigValue& value, std::uint64_t lowest, std::uint64_t highest);
  std::optional<bool> boolean(const ConfigValue& value);
  // One of these words; a problem names the nearest.
  std::optional<std::string> word(const ConfigValue& value, const std::vector<std::string>& words);
  template <typename Value, std::size_t size>
  std::optional<Value> word(const ConfigValue& value, const Word<Value> (&words)[size]) {
    std::vector<std::string> texts;
    for (const auto& one : words)
      texts.emplace_back(one.word);
    const auto chosen = word(value, texts);
    return chosen ? from_word(words, *chosen) : std::nullopt;
  }
  // What parse makes of a text; for its nullopt the problem is "`TEXT` WRONG".
  template <typename Parse>
  auto parsed(const ConfigValue& value, Parse parse, std::string_view wrong, const char* remedy) {
    const auto written = text(value);
    auto result = written ? parse(*written) : std::nullopt;
    if (written && !result) error(value, fmt::format("`{}` {}", shown(*written), wrong), remedy);
    return result;
  }
  // A list of texts without repetition, as read returns them.
  void texts(const ConfigValue& list, std::vector<std::string>& target,
             const std::function<std::optional<std::string>(const ConfigValue&)>& read);

  // The readers of ordinary members. Each puts what it reads into the target, or leaves that as it is, with a problem
  // noted.
  template <typename Target>
  Read into(Target& target, void (*read)(ConfigReader&, const ConfigValue&, Target&)) {
    return [this, &target, read](const ConfigValue& value) { read(*this, value, target); };
  }
  template <typename Flag>
  Read flag_into(Flag& target) {
    return [this, &target](const ConfigValue& value) { set(target, boolean(value)); };
  }
  template <typename Number>
  Read number_into(Number& target, std::uint64_t lowest, std::uint64_t highest) {
    return [this, &target, lowest, highest](const ConfigValue& value) {
      if (const auto wide = number(value, lowest, highest)) target = static_cast<unsigned>(*wide);
    };
  }
  template <typename Target, typename Value, std::size_t size>
  Read word_into(Target& target, const Word<Value> (&words)[size]) {
    return [this, &target, &words](const ConfigValue& value) { set(target, word(value, words)); };
  }
  template <typename Target, typename Parse>
  Read text_into(Target& target, Parse parse, std::string_view wrong, const char* remedy) {
    return [this, &target, parse, wrong, remedy](const ConfigValue& value) {
      set(target, parsed(value, parse, wrong, remedy));
    };
  }
  // A list replaces what the target holds. In a list of words one may come twice.
  template <typename Parse>
  Read texts_into(std::vector<std::string>& target, Parse parse, std::string_view wrong, const char* remedy) {
    return [this, &target, parse, wrong, remedy](const ConfigValue& list) {
      texts(list, target, [&](const ConfigValue& element) { return parsed(element, parse, wrong, remedy); });
    };
  }
  Read words_into(std::vector<std::string>& target, std::vector<std::string> words);

  void error(const ConfigValue& value, const std::string& message, std::string remedy);
  void warning(const ConfigValue& value, const std::string& message, std::string remedy);
  // The line of a value that may be there in this text, by its pointer.
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
  // Read when something is to be said: a configuration without problems needs no second pass.
  mutable std::optional<JsonLines> lines_;
};

// Reads a text over what config holds already: lists are replaced, networks are replaced one by one, members of "nodes"
// too. Problems are noted in the reader.
void read_config_members(ConfigReader& reader, Config& config);
// Readers of members, each with a source file of its own. ranges are of one network.
void read_pools(ConfigReader& reader, const ConfigValue& value, std::vector<Pool>& pools);
void read_networks(ConfigReader& reader, const ConfigValue& value, std::map<std::string, Network>& networks);
// "vf" of a network.
void read_vf(ConfigReader& reader, const ConfigValue& value, Network& network);
void read_addresses(ConfigReader& reader, const ConfigValue& value, std::vector<AddressRange>& ranges);

// The keys of a node's own files that the cluster's file must not have.
//
// Who edits a ConfigMap decides which containers get which HCAs, and must not become root on the nodes by it, nor
// disconnect them. These keys of config.json name programs that root executes, directories and files that it trusts or
// writes to, or take the node off the network:
//
//   runtime                   runtimes and a hook; whose annotations are trusted (engine); seccomp (allow_system_calls)
//   networks.NAME.ipam        which program root executes, and its input: host-local's dataDir and whereabouts'
//                             log_file are paths that it writes to
//   networks.NAME.ipam_dir    the directory of that program
//   networks.NAME.take_node_netdevs  moves the netdev of the node's default route, sshd or kubelet into a container
//   node_index, as a path     except a file of /etc/rdma-init itself, where only root writes
//   node_index, as a number   no program, but every node would give the same addresses
//
// None of config.json's other keys is a path or a program (tests/unit/cluster/cluster_test.cpp goes through the
// schema).
//
// Notes an error for each such key of the text. Returns true if there is one.
bool refuse_node_keys(ConfigReader& reader);

// The problem and the remedy of a pool's or network's name that is_config_name() refuses.
inline constexpr const char* kNoName = "is no name";
inline constexpr const char* kNameRemedy = "1 to 63 of the characters A-Z a-z 0-9 _ . -";

}  // namespace hook
