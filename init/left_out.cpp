// Keeps parts of the C library out of the static program. The program never runs them, but a reference inside the
// library links them. With a definition here, the linker leaves out the library's object file, and all that only it
// needs.
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-redundant-declaration)

#ifdef __GLIBC__

// The definitions below are weak. If another glibc has other names, or links the object file anyway, its own definition
// is used: the program is larger, and behaves the same.
extern "C" {

// Prints a failed assertion of glibc, in its words. glibc's function also translates the text and writes to wide
// streams: 31 kB with the wide form of printf (glibc 2.36, assert/assert.c).
[[gnu::noreturn, gnu::weak]] void __assert_fail(const char* assertion, const char* file, unsigned line,
                                                const char* function) noexcept {
  std::array<char, 16> number{};
  std::to_chars(number.data(), number.data() + number.size() - 1, line);
  const std::array<const char*, 10> parts{
      "rdma-init: ",        file,          ":",       number.data(), ": ", function ? function : "",
      function ? ": " : "", "Assertion `", assertion, "' failed.\n"};
  for (const char* part : parts) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  std::abort();
}

// Without modules of iconv, the loader of shared objects is not linked: 31 kB (glibc 2.36, iconv/gconv_dl.c). The
// program sets no locale, so glibc converts no text. The program must not execute code of the image in any case.
struct __gconv_loaded_object;
[[gnu::weak]] __gconv_loaded_object* __gconv_find_shlib(const char*) {
  return nullptr;
}

[[gnu::weak]] void __gconv_release_shlib(__gconv_loaded_object*) {}

}  // extern "C"

#endif

// NOLINTEND(bugprone-reserved-identifier,readability-redundant-declaration)
