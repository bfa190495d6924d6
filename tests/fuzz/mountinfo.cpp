// Any text as the mountinfo of a container's process, and any mounts of its config.json.
#include <limits>
#include <sstream>

#include "hook/apply/live/container_root.hpp"
#include "require.hpp"

namespace {

using fuzz::require;

// Returns true if the fields between the sixth and "-" have a peer group.
bool has_peer_group(const std::string& line) {
  std::string field;
  std::istringstream fields(line);
  for (int number = 0; std::getline(fields, field, ' '); ++number) {
    if (number < 6) continue;
    if (field == "-") return false;
    if (field.starts_with("shared:")) return true;
  }
  return false;
}

void check_mountinfo(const std::string& text, std::uint64_t id) {
  const bool any = hook::is_shared(text, 0);
  std::istringstream lines(text);
  bool expected = false;
  for (std::string line; std::getline(lines, line);)
    expected = expected || has_peer_group(line);
  require(!any || expected, "a shared mount has a peer group", text);
  // A listed mount determines the result. A mount that is not listed counts as shared if any mount is.
  const std::string own = std::to_string(id) + " 5 0:1 / /dev rw ";
  require(!hook::is_shared(own + "master:1 - tmpfs none rw\n" + text, id) || id == 0, "a private mount is not shared",
          text);
  require(hook::is_shared(own + "shared:1 - tmpfs none rw\n" + text, id), "a shared mount is shared", text);
  require(hook::lies_on(own + "- tmpfs none rw\n" + text, id, 5), "a mount lies on its parent", text);
  const std::uint64_t unlisted = std::numeric_limits<std::uint64_t>::max();
  require(hook::is_shared(text, unlisted) == any || text.find(std::to_string(unlisted)) != std::string::npos,
          "an unknown mount counts as shared if any mount is", text);
}

void check_spec(FuzzedDataProvider& data) {
  std::vector<hook::SpecMount> mounts;
  for (auto left = data.ConsumeIntegralInRange(0, 4); left > 0; --left) {
    hook::SpecMount mount;
    mount.destination = data.ConsumeRandomLengthString(24);
    mount.is_bind = data.ConsumeBool();
    mounts.push_back(std::move(mount));
  }
  const std::string path = data.ConsumeRandomLengthString(24);
  const bool bind = hook::is_in_bind(mounts, path);
  require(hook::is_in_bind(mounts, "/" + path + "//") == bind, "slashes at both ends change nothing", path);
  mounts.push_back({});
  mounts.back().destination = path;
  mounts.back().is_bind = true;
  require(hook::is_in_bind(mounts, path), "a bind at the path holds the path", path);
  mounts.push_back({});
  mounts.back().destination = "/x/../dev/.";
  require(hook::has_own_dev(mounts), "a separate file system at /dev is detected");
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const auto id = data.ConsumeIntegralInRange<std::uint64_t>(0, 64);
  const std::string text = data.ConsumeRandomLengthString(4096);
  check_mountinfo(text, id);
  check_spec(data);
}
