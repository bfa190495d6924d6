// The lines that rules.py and the programs exchange: fields with tabs between them, where "\t", "\n", "\r" and "\\"
// stand for these bytes in a field. README.md has the fields of each kind of question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace questions {

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Returns the parts that are not empty.
inline std::vector<std::string> parts_of(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::string& part : split(text, at))
    if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

inline std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    const char c = is_escape ? text[++i] : text[i];
    plain += !is_escape ? c : c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
  }
  return plain;
}

inline std::string escaped(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\t' || c == '\n' || c == '\r' || c == '\\') line += '\\';
    line += c == '\t' ? 't' : c == '\n' ? 'n' : c == '\r' ? 'r' : c;
  }
  return line;
}

inline std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (const std::string& field : split(line, '\t'))
    fields.push_back(unescaped(field));
  return fields;
}

inline std::pair<std::string, std::string> split_first(const std::string& text, char at) {
  const std::size_t found = text.find(at);
  if (found == std::string::npos) return {text, ""};
  return {text.substr(0, found), text.substr(found + 1)};
}

// A port of a question has a table of this many slots; those that the question does not name are empty.
inline constexpr int kTableLength = 32;

struct Slot {
  int index = 0;
  std::uint8_t gid[16] = {};
  char type = 'e';  // '1', '2', or 'e': reading gid_attrs/types returns EINVAL
};

// Parses INDEX:GID:TYPE,..., where GID has 32 hexadecimal digits.
inline std::vector<Slot> parse_table(const std::string& text) {
  std::vector<Slot> table;
  for (const std::string& entry : parts_of(text, ',')) {
    const auto parts = split(entry, ':');
    Slot slot;
    slot.index = std::stoi(parts[0]);
    for (std::size_t i = 0; i < 16; ++i)
      slot.gid[i] = static_cast<std::uint8_t>(std::stoul(parts[1].substr(2 * i, 2), nullptr, 16));
    slot.type = parts[2][0];
    table.push_back(slot);
  }
  return table;
}

struct Address {
  std::string text;
  unsigned prefix = 0;
  std::string label;
};

struct Netdev {
  std::string name;
  std::string state;  // up, no-carrier, down
  std::vector<Address> addresses;
};

// Parses NAME STATE ADDRESS/PREFIX[@LABEL] ...;NAME STATE ...
inline std::vector<Netdev> parse_netdevs(const std::string& text) {
  std::vector<Netdev> netdevs;
  for (const std::string& entry : parts_of(text, ';')) {
    const auto words = parts_of(entry, ' ');
    Netdev netdev{words[0], words[1], {}};
    for (std::size_t i = 2; i < words.size(); ++i) {
      const auto [address, label] = split_first(words[i], '@');
      const auto [plain, prefix] = split_first(address, '/');
      netdev.addresses.push_back({plain, static_cast<unsigned>(std::stoul(prefix)), label.empty() ? words[0] : label});
    }
    netdevs.push_back(std::move(netdev));
  }
  return netdevs;
}

// The files of a question about nccl.conf: the first fields have their texts, in this order; empty: the file is absent.
inline constexpr const char* kPasswdHome = "/home/passwd";      // home in the user database
inline constexpr const char* kHomeVariable = "/home/variable";  // $HOME
inline constexpr const char* kConfFiles[] = {"/home/passwd/.nccl.conf", "/home/variable/.nccl.conf", "/etc/nccl.conf",
                                             "/opt/nccl.conf"};
inline constexpr std::size_t kConfFileCount = 4;

}  // namespace questions
