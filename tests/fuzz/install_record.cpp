// Any text as the record of an install, and records of any texts.
#include "hook/admin/install/record.hpp"

#include <array>

#include "require.hpp"

namespace {

using fuzz::require;

void check(const std::string& text) {
  const auto record = hook::parse_install_record(text);
  if (!record) return fuzz::require_one_line(record.error().message, "the refusal of a record");
  const std::string written = hook::install_record_text(*record);
  const auto again = hook::parse_install_record(written);
  require(again && hook::install_record_text(*again) == written, "a record reads back", written);
}

std::string ascii(FuzzedDataProvider& data) {
  std::string text = data.ConsumeRandomLengthString(60);
  for (char& c : text)
    c = static_cast<char>(c & 0x7f);
  return text;
}

hook::InstallRecord arbitrary_record(FuzzedDataProvider& data) {
  constexpr std::array kStates = {hook::InstallState::kWritten, hook::InstallState::kInEffect,
                                  hook::InstallState::kRestored, hook::InstallState::kRestoredInEffect};
  hook::InstallRecord record{ascii(data), ascii(data), ascii(data), ascii(data),
                             {},          {},          {},          data.PickValueInArray(kStates)};
  for (auto left = data.ConsumeIntegralInRange(0, 3); left > 0; --left) {
    hook::FileEdit edit{ascii(data), {}, ascii(data)};
    if (data.ConsumeBool()) edit.before = ascii(data);
    record.edits.push_back(std::move(edit));
    record.directories.push_back(ascii(data));
    record.put.push_back(ascii(data));
  }
  return record;
}

}  // namespace

void fuzz::run(std::string_view input, FuzzedDataProvider data) {
  check(std::string(input));
  const hook::InstallRecord record = arbitrary_record(data);
  std::string text = hook::install_record_text(record);
  const auto read = hook::parse_install_record(text);
  require(read && hook::install_record_text(*read) == text, "a written record reads back", text);
  // A text with one changed bit is no record, or the texts of its files are unchanged.
  text[data.ConsumeIntegralInRange<std::size_t>(0, text.size() - 1)] ^=
      static_cast<char>(1 << data.ConsumeIntegralInRange(0, 6));
  const auto damaged = hook::parse_install_record(text);
  if (!damaged) return;
  require(damaged->edits.size() <= record.edits.size(), "damage adds no file", text);
  for (std::size_t i = 0; i < damaged->edits.size(); ++i) {
    require(damaged->edits[i].after == record.edits[i].after, "damage changes no text after an edit", text);
    require(!damaged->edits[i].before || damaged->edits[i].before == record.edits[i].before,
            "damage changes no text before an edit", text);
  }
}
