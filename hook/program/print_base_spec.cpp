#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/json/json.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/apply/base_spec.hpp"
#include "hook/program/commands.hpp"

namespace hook {

Result<std::string> hook_path(const Options& options) {
  if (options.hook) {
    if (options.hook->starts_with('/')) return *options.hook;
    return Error{fmt::format("--hook `{}`: not an absolute path", base::printable(*options.hook)), 0,
                 "pass an absolute path: runtimes start hooks in an unknown directory"};
  }
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  Error unknown = sys_error(error.value(), "cannot find the path of rdma-hook: read `/proc/self/exe`");
  unknown.hint = "pass it with --hook PATH";
  return unknown;
}

Result<void> print_base_spec(const Options& options) {
  constexpr const char* kWhat = "the specification on stdin";
  // The read has no time limit, because a person can type or paste the specification.
  const std::string text = TRY(read_text_fd(STDIN_FILENO, JsonLimits().bytes, -1, kWhat));
  auto spec = parse_json(text, kWhat);
  if (!spec) {
    Error error = std::move(spec).error();
    error.hint = kBaseSpecRemedy;
    return error;
  }
  const std::string hook = TRY(hook_path(options));
  TRY_VOID(edit_base_spec(hook, options.verify, *spec));
  const std::string edited = spec->dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(edited.data(), 1, edited.size(), stdout);
  return {};
}

}  // namespace hook
