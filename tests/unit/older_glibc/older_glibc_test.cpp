// The functions of init/ping/older_glibc.cpp, in a program with the C library of this machine.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "init/ping/errno_names.hpp"
#include "init/ping/older_glibc.hpp"

namespace {

using Name = const char*(int);

// The function of the C library behind the program's own.
Name* name_of_library() {
  return reinterpret_cast<Name*>(dlsym(RTLD_NEXT, "strerrorname_np"));
}

TEST(OlderGlibc, NamesEveryErrorNumberAsTheLibrary) {
  Name* const expected = name_of_library();
  ASSERT_TRUE(expected);
  ASSERT_NE(expected, &strerrorname_np) << "the program's own function is not tested";
  for (int code = -1; code < 200; ++code) {
    // The library has a name for 0, which is no error.
    const char* wanted = code == 0 ? nullptr : expected(code);
    EXPECT_STREQ(strerrorname_np(code), wanted) << code;
  }
}

// The unwinder of the static libgcc calls the program's _dl_find_object().
TEST(OlderGlibc, CatchesAnException) {
  EXPECT_THROW(throw std::runtime_error("thrown"), std::runtime_error);
}

}  // namespace
