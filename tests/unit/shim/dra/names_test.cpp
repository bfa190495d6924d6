#include "shim/dra/names.hpp"

#include <gtest/gtest.h>

#include <string>

namespace shim {
namespace {

TEST(DraNames, AcceptsWhatKubernetesAccepts) {
  const struct {
    std::string text;
    bool is_label;
    bool is_subdomain;
    bool is_uid;
  } rows[] = {
      {"n1", true, true, true},
      {"pci-0000-3b-00-0", true, true, true},
      {"a.b-c.d", false, true, false},
      {"", false, false, false},
      {"mlx5_0", false, false, false},
      {"N1", false, false, false},
      {"-a", false, false, true},
      {"a-", false, false, true},
      {"a..b", false, false, false},
      {".a", false, false, false},
      {"a/b", false, false, false},
      {"..", false, false, false},
      {std::string("a\0b", 3), false, false, false},
      {"\xc3\xa4", false, false, false},
      {std::string(63, 'a'), true, true, true},
      {std::string(64, 'a'), false, false, false},
      {std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." + std::string(61, 'd'),
       false, true, false},
      {std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." + std::string(62, 'd'),
       false, false, false}};
  for (const auto& row : rows) {
    EXPECT_EQ(is_dns_label(row.text), row.is_label) << row.text;
    EXPECT_EQ(is_dns_subdomain(row.text), row.is_subdomain) << row.text;
    EXPECT_EQ(is_uid(row.text), row.is_uid) << row.text;
  }
}

}  // namespace
}  // namespace shim
