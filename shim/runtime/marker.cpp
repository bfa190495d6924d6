#include "shim/runtime/marker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;
using hook::Json;

constexpr std::size_t kLongestMarker = std::size_t{1} << 20;
constexpr std::uint64_t kInt64Max = INT64_MAX;

fabric::UniqueFd open_bundle(const std::string& bundle) {
  return fabric::UniqueFd(::open(bundle.empty() ? "." : bundle.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Result<std::optional<SpecFile>> open_own(const std::string& bundle, const char* name, const hook::JsonLimits& limits) {
  auto file = TRY(SpecFile::open(bundle, name, limits));
  if (!file) return file;
  const FileOwner& owner = file->owner();
  if ((owner.uid != 0 && owner.uid != ::geteuid()) || (owner.mode & 022) != 0) {
    return Error{fmt::format("cannot use `{}`: somebody else could have written it", fabric::printable(file->path())),
                 0, "remove it"};
  }
  return file;
}

Result<FileVersion> parse_version(const Json& marker) {
  const Json* config = hook::member(marker, "config");
  if (!config) return hook::wrong_member("config");
  FileVersion version;
  version.dev = TRY(hook::number_at(*config, "dev", UINT64_MAX));
  version.ino = TRY(hook::number_at(*config, "ino", UINT64_MAX));
  version.mtime_ns = static_cast<std::int64_t>(TRY(hook::number_at(*config, "mtime_ns", kInt64Max)));
  version.size = static_cast<std::int64_t>(TRY(hook::number_at(*config, "size", kInt64Max)));
  return version;
}

}  // namespace

std::string marker_text(const Marker& marker) {
  Json json{{"id", marker.id},
            {"config",
             {{"dev", marker.edited.dev},
              {"ino", marker.edited.ino},
              {"mtime_ns", marker.edited.mtime_ns},
              {"size", marker.edited.size}}},
            {"ipc_lock", marker.process.ipc_lock}};
  hook::put_optional(json, "memlock", marker.process.memlock);
  return json.dump() + "\n";
}

Result<Marker> parse_marker(std::string_view text) {
  const Json json = TRY(hook::parse_json(text, kMarkerName, {.bytes = kLongestMarker}));
  Marker marker;
  marker.id = TRY(hook::text_at(json, "id"));
  marker.edited = TRY(parse_version(json));
  marker.process.ipc_lock = TRY(hook::truth_at(json, "ipc_lock"));
  TRY_VOID(hook::optional_number(json, "memlock", marker.process.memlock));
  return marker;
}

Result<std::optional<Marker>> read_marker(const std::string& bundle) {
  const auto file = TRY(open_own(bundle, kMarkerName, {.bytes = kLongestMarker}));
  if (!file) return std::optional<Marker>();
  auto marker = parse_marker(file->text());
  if (!marker) return fabric::wrap(std::move(marker).error(), fabric::printable(file->path()));
  return std::optional<Marker>(*std::move(marker));
}

Result<std::optional<std::string>> read_original(const std::string& bundle, const FileVersion& config) {
  const auto marker = TRY(read_marker(bundle));
  if (!marker || marker->edited != config) return std::optional<std::string>();
  const auto original = TRY(open_own(bundle, kOriginalName, {}));
  if (!original) return std::optional<std::string>();
  return std::optional<std::string>(original->text());
}

Result<void> leave_marker(const std::string& bundle, const Marker& marker, std::string_view original,
                          const hook::ProcessIdentity& writer) {
  const fabric::UniqueFd directory = open_bundle(bundle);
  if (!directory.ok()) return fabric::sys_error(errno, "open bundle `{}`", fabric::printable(bundle));
  remove_leftovers(directory.get(), {});
  const FileOwner ours{::geteuid(), ::getegid(), 0600};
  auto config = TRY(NewFile::write(directory.get(), kOriginalName, original, ours, writer));
  auto file = TRY(NewFile::write(directory.get(), kMarkerName, marker_text(marker), ours, writer));
  TRY_VOID(config.put_in_place());
  return file.put_in_place();
}

void remove_marker(const std::string& bundle) {
  const fabric::UniqueFd directory = open_bundle(bundle);
  constexpr std::array<std::string_view, 2> kBoth = {kMarkerName, kOriginalName};
  if (directory.ok()) remove_leftovers(directory.get(), kBoth);
}

}  // namespace shim
