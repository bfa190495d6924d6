#include "fabric/command_line.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

struct Settings {
  std::string file;
  bool quick = false;
};

fabric::Result<void> set_file(Settings& settings, std::string_view value) {
  if (value.empty()) return fabric::make_error("--file: no name");
  settings.file = value;
  return {};
}

fabric::Result<void> set_quick(Settings& settings, std::string_view value) {
  settings.quick = value == "1";
  return {};
}

constexpr fabric::Option<Settings> kRows[] = {{"file", "FILE", "a file that is read", set_file, "read write"},
                                              {"quick", "", "sooner", set_quick}};
constexpr std::span<const fabric::Option<Settings>> kTable(kRows);

// The settings after one option, or the error.
std::string applied(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments)
    pointers.push_back(argument.data());
  Settings settings;
  std::size_t at = 0;
  const auto done = fabric::apply_option(kTable, pointers, at, settings);
  return done ? fmt::format("{} {} {}", settings.file, settings.quick, at) : done.error().message;
}

TEST(CommandLine, AppliesAnOptionOrNamesWhatIsWrong) {
  EXPECT_EQ(applied({"--file", "a"}), "a false 1");
  EXPECT_EQ(applied({"--file=a=b", "c"}), "a=b false 0");
  EXPECT_EQ(applied({"--file", "--quick"}), "--quick false 1");
  EXPECT_EQ(applied({"--quick", "c"}), " true 0");
  EXPECT_EQ(applied({"--file"}), "`--file` needs a value: FILE");
  EXPECT_EQ(applied({"--file="}), "--file: no name");
  EXPECT_EQ(applied({"--quick=0"}), "`--quick` takes no value");
  EXPECT_EQ(applied({"--token=secret"}), "unknown option `--token`");
  EXPECT_EQ(applied({"--\x1b[2J"}), "unknown option `--?[2J`");
  EXPECT_EQ(applied({"--"}), "unknown option `--`");
  EXPECT_EQ(applied({"file"}), "unexpected argument `file`");
}

TEST(CommandLine, HelpHasTheOptionsOfACommand) {
  EXPECT_EQ(fabric::option_help(kTable), "  --file FILE  a file that is read\n  --quick      sooner\n");
  EXPECT_EQ(fabric::option_help(kTable, "write"), fabric::option_help(kTable));
  EXPECT_EQ(fabric::option_help(kTable, "delete"), "  --quick      sooner\n");
}

TEST(CommandLine, WrapsAtEightyColumns) {
  const std::string a(30, 'a');
  EXPECT_EQ(fabric::help_lines("  x", a + " " + a + " " + a, 19),
            "  x                " + a + " " + a + "\n" + std::string(19, ' ') + a + "\n");
  EXPECT_EQ(fabric::help_lines("  too-long-for-it", "b c", 6), "  too-long-for-it\n      b c\n");
  EXPECT_EQ(fabric::wrapped("a b"), "a b\n");
  const std::string longest(100, 'b');
  EXPECT_EQ(fabric::wrapped("a " + longest + " c"), "a\n" + longest + "\nc\n");
}

}  // namespace
