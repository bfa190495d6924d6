// What is looked at before a plugin runs: the call's words, the plugin's file.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "fabric/text.hpp"
#include "hook/rails/address/ipam_helper.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr std::size_t kLongestId = 128;

// [A-Za-z0-9][A-Za-z0-9_.-]*: the specification's alphabet of names and container ids.
bool is_cni_name(std::string_view text) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= kLongestId && alphanumeric(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_path(std::string_view text) {
  return text.starts_with('/') && text.size() < PATH_MAX &&
         std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

bool is_ifname(std::string_view text) {
  return !text.empty() && text.size() < 16 && text.find_first_of("/:") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Result<void> check_ipam_program(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    Error error{std::strerror(errno), errno};
    if (errno == ENOENT) error.hint = kIpamInstallHint;
    return error;
  }
  if (!S_ISREG(info.st_mode)) return Error{"it is no file", EACCES, kIpamInstallHint};
  if ((info.st_uid == 0 || info.st_uid == ::geteuid()) && (info.st_mode & 022) == 0) return {};
  return Error{"others than root may change it", EPERM, fmt::format("chown root {0}; chmod 0755 {0}", path)};
}

Result<void> check_call(const IpamCall& call) {
  const auto bad = [](std::string_view what, std::string_view value) {
    return Error{fmt::format("`{}` is no {}", fabric::printable(value.substr(0, kLongestId)), what), EINVAL, {}};
  };
  const bool add = call.command == IpamCall::Command::kAdd;
  if (!is_path(call.plugin)) return bad("absolute path of a plugin", call.plugin);
  if (!is_cni_name(call.network)) return bad("name of a network", call.network);
  if (!is_cni_name(call.container_id)) return bad("container id", call.container_id);
  if (!is_ifname(call.ifname)) return bad("name of a netdev", call.ifname);
  if ((add || !call.netns.empty()) && !is_path(call.netns)) return bad("path of a network namespace", call.netns);
  if (call.ipam.is_object() && call.ipam.contains("type")) return {};
  return bad("`ipam` object with a type", call.ipam.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace hook
