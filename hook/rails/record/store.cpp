#include "hook/rails/record/store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr std::string_view kEnding = ".json";

std::string file_of(const std::string& key) {
  return key + std::string(kEnding);
}

// Makes the error for a record that is too large. Names the netdev with the most addresses, routes and rules, because
// these make a record large.
Error too_large(const NetworkRecord& record) {
  std::string message = "cannot write the record of the rails: it is too large";
  const auto most = std::ranges::max_element(record.rails, [](const RailRecord& a, const RailRecord& b) {
    return a.host.records.size() < b.host.records.size();
  });
  if (most != record.rails.end())
    message += fmt::format(", with {} addresses, routes and rules of `{}`", most->host.records.size(),
                           base::printable(most->host.name));
  return {.message = std::move(message), .code = EFBIG, .hint = "remove routes from the netdev, or request fewer HCAs"};
}

}  // namespace

NetworkRecordStore::NetworkRecordStore(std::shared_ptr<const LedgerFiles> files,
                                       std::shared_ptr<const LedgerDirectory> records)
    : files_(std::move(files)), records_(std::move(records)) {}

Result<NetworkRecordStore> NetworkRecordStore::open(const std::string& ledger_directory) {
  auto files = TRY(LedgerFiles::open(ledger_directory));
  auto records = std::make_shared<const LedgerDirectory>(
      TRY(open_directory(files->root.fd.get(), "network", ledger_directory + "/network", true)));
  return NetworkRecordStore(std::move(files), std::move(records));
}

Result<Presence> NetworkRecordStore::read_presence(const std::string& ledger_directory, const std::string& key) {
  // Makes one system call instead of those of NetworkRecordStore::open(), because this function runs for every grant,
  // and most grants have no rails.
  const std::string path = ledger_directory + "/network/" + file_of(key);
  if (::access(path.c_str(), F_OK) == 0) return Presence::kPresent;
  return errno == ENOENT ? Result<Presence>(Presence::kAbsent) : sys_error(errno, "cannot read `{}`", path);
}

bool NetworkRecordStore::has_any(const std::string& ledger_directory) {
  // open() is not called, because it would make the directory.
  std::error_code error;
  const bool empty = std::filesystem::is_empty(ledger_directory + "/network", error);
  return error ? error != std::errc::no_such_file_or_directory : !empty;
}

Result<std::optional<NetworkRecord>> NetworkRecordStore::read(const std::string& key) const {
  // A key that is no file name has no record, and must not become part of a path.
  if (!is_file_name(key, kLongestKey)) return std::optional<NetworkRecord>();
  const auto text = TRY(read_ledger_file(*records_, file_of(key)));
  if (!text) return std::optional<NetworkRecord>();
  return std::optional(TRY(parse_network_record(*text, records_->path + "/" + file_of(key), key)));
}

Result<void> NetworkRecordStore::write(const NetworkRecord& record) const {
  const std::string text = network_record_text(record);
  if (text.size() > kLargestLedgerFile) return too_large(record);
  return files_->replace_file(*records_, file_of(record.key), text);
}

Result<void> NetworkRecordStore::remove(const std::string& key) const {
  return remove_file(*records_, file_of(key));
}

Result<std::vector<std::string>> NetworkRecordStore::keys() const {
  std::vector<std::string> keys;
  for (const std::string& name : TRY(list_names(*records_))) {
    if (!std::string_view(name).ends_with(kEnding)) continue;
    keys.push_back(name.substr(0, name.size() - kEnding.size()));
  }
  return keys;
}

}  // namespace hook
