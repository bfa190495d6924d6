// The functions of init/ping/older_glibc.cpp, in a program with the C library of this machine.
#include <gtest/gtest.h>

#include <stdexcept>

namespace {

// The unwinder of the static libgcc calls the program's _dl_find_object().
TEST(OlderGlibc, CatchesAnException) {
  EXPECT_THROW(throw std::runtime_error("thrown"), std::runtime_error);
}

}  // namespace
