// Keeps parts of the C library out of the static program. The program never runs them, or needs little of them, but a
// reference inside the library links them. With a definition here, the linker leaves out the library's object file, and
// all that only it needs.
#include <strings.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "init/number_text.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier,readability-redundant-declaration,cert-dcl50-cpp)

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)

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

// The next eight definitions belong together. While one of them is missing, glibc's streams stay in the program, and
// with the streams printf(), conversions of text, catalogs of translated messages and locales: 213 kB of glibc 2.36.
// The program writes with write(2). A source that uses a stream would link the streams again, or end at the null
// pointer below.

// libstdc++ translates the messages of its exceptions. Without setlocale() the C library translates none.
[[gnu::weak]] char* gettext(const char* text) noexcept {
  return const_cast<char*>(text);
}

// The message of an error number. glibc's function translates it.
[[gnu::weak]] char* strerror(int code) noexcept {
  static std::array<char, 32> unknown{"Unknown error "};
  if (const char* text = ::strerrordesc_np(code)) return const_cast<char*>(text);
  const std::size_t length = std::strlen("Unknown error ");
  *std::to_chars(unknown.data() + length, unknown.data() + unknown.size() - 1, code).ptr = '\0';
  return unknown.data();
}

// The same for the loader of shared objects, which prints why it failed (glibc 2.36, elf/dl-error-skeleton.c).
[[gnu::weak]] char* __strerror_r(int code, char*, std::size_t) {
  return strerror(code);
}

// A child of a process with one thread. glibc's function also locks the streams for the child (glibc 2.36,
// posix/fork.c).
[[gnu::weak]] pid_t fork() noexcept {
  return ::_Fork();
}

// nlohmann/json writes control characters and its messages with snprintf(), inet_ntop() addresses with sprintf().
[[gnu::weak, gnu::format(printf, 3, 4)]] int snprintf(char* to, std::size_t size, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const int length = init::print_numbers(to, size, format, arguments);
  va_end(arguments);
  return length;
}

[[gnu::weak, gnu::format(printf, 2, 3)]] int sprintf(char* to, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  const int length = init::print_numbers(to, SIZE_MAX, format, arguments);
  va_end(arguments);
  return length;
}

// Only malloc_stats() and malloc_info() of glibc print to a stream; the program calls neither.
[[gnu::weak, gnu::format(printf, 2, 3)]] int fprintf(FILE*, const char*, ...) {
  std::abort();
}
[[gnu::weak]] FILE* stderr = nullptr;

// The functions that convert wide characters of the C locale. Its table has the address; nothing in the program
// converts any (glibc 2.36, wcsmbs/wcsmbsload.h).
[[gnu::weak]] extern const std::array<std::uintptr_t, 4> __wcsmbs_gconv_fcts_c;
const std::array<std::uintptr_t, 4> __wcsmbs_gconv_fcts_c{};

// nlohmann/json reads fractions with strtod(): 12 kB, and 25 kB for strncasecmp(), which reads "inf"
// and "nan".
[[gnu::weak]] double strtod(const char* text, char** end) noexcept {
  return init::read_json_number(text, end);
}

// glibc has a function for each of five kinds of CPU: 22 kB. The program compares a few short words.
[[gnu::weak]] int strcasecmp(const char* left, const char* right) noexcept {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : static_cast<unsigned char>(c); };
  while (*left != '\0' && lower(*left) == lower(*right)) {
    ++left;
    ++right;
  }
  return lower(*left) - lower(*right);
}

}  // extern "C"

#endif

// NOLINTEND(bugprone-reserved-identifier,readability-redundant-declaration,cert-dcl50-cpp)
