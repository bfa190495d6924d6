#include "hook/admin/install/unit.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hook {
namespace {

std::vector<std::string> words(std::string_view text, const UnitVariables& variables = {}) {
  const auto command = exec_start(parse_unit(text, "/u"), variables);
  return command ? command->words : std::vector<std::string>();
}
using Words = std::vector<std::string>;

TEST(Unit, HasFileAndLineOfEachSetting) {
  const Unit unit = parse_unit("[Service]\n# no=1\nExecStart=/a \\\n  # comment\n  --x \\\n  --y\n\nA = b=c\n", "/u");
  ASSERT_EQ(unit.size(), 2U);
  EXPECT_EQ(unit[0].key, "ExecStart");
  EXPECT_EQ(unit[0].line, 3U);
  EXPECT_EQ(unit[1].key, "A");
  EXPECT_EQ(unit[1].value, "b=c");
  EXPECT_EQ(unit[1].line, 8U);
  EXPECT_EQ(words("ExecStart=/a \\\n --x\n"), (Words{"/a", "--x"}));
  EXPECT_EQ(words("ExecStart=/a \\\n --x \\"), (Words{"/a", "--x"}));
  EXPECT_EQ(words("ExecStart=/a \\\n --x \\\n"), (Words{"/a", "--x"}));
}

TEST(Unit, ReturnsLastCommand) {
  EXPECT_EQ(words("[Service]\nExecStart=/a/containerd --x\n"), (Words{"/a/containerd", "--x"}));
  EXPECT_EQ(words("ExecStart=/a\nExecStart=\n ExecStart = -@\"/b c/d\" name 'x y' z\\ z"),
            (Words{"/b c/d", "x y", "z z"}));
  EXPECT_EQ(words("ExecStart=/a\nExecStart="), Words());
  EXPECT_EQ(words("ExecStartPre=/x"), Words());
}

TEST(Unit, ReplacesVariables) {
  const UnitVariables variables{{"A", {"/u", 1, "A", "--x 'y z'"}}, {"B", {"/u", 2, "B", "b c"}}};
  EXPECT_EQ(words("ExecStart=/a $A ${B} -${B}- $NONE ${NONE} ${", variables),
            (Words{"/a", "--x", "y z", "b c", "-b c-", "", "${"}));
  EXPECT_EQ(words("ExecStart=:/a $A", variables), (Words{"/a", "$A"}));
}

TEST(Unit, ReadsDropInsAndFilesOfVariables) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "unit_test";
  std::filesystem::remove_all(root);
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("usr/lib/systemd/system/x.service", "ExecStart=/lower\n");
  put("usr/lib/systemd/real.service",
      "Environment=A=1 \"B=2 3\"\nEnvironmentFile=-/etc/sysconfig/x\nExecStart=/x $A\n");
  // An absolute link of the node means a file of the node.
  std::filesystem::create_directories(root / "etc/systemd/system");
  std::filesystem::create_symlink("/usr/lib/systemd/real.service", root / "etc/systemd/system/x.service");
  put("usr/lib/systemd/system/x.service.d/20-b.conf", "ExecStart=\nExecStart=/hidden\n");
  put("etc/systemd/system/x.service.d/20-b.conf", "ExecStart=\nExecStart=/y ${A}\n");
  put("etc/sysconfig/x", "# comment\nA='of file'\n");
  const Unit unit = read_unit(root, "x.service");
  const UnitVariables variables = read_unit_variables(root, unit);
  EXPECT_EQ(variables.at("A").value, "of file");
  EXPECT_EQ(variables.at("A").file, "/etc/sysconfig/x");
  EXPECT_EQ(variables.at("A").line, 2U);
  EXPECT_EQ(variables.at("B").value, "2 3");
  const auto command = exec_start(unit, variables);
  ASSERT_TRUE(command);
  EXPECT_EQ(command->words, (Words{"/y", "of file"}));
  EXPECT_EQ(command->file, "/etc/systemd/system/x.service.d/20-b.conf");
  EXPECT_EQ(command->line, 2U);
  EXPECT_TRUE(read_unit(root, "none.service").empty());
  // A masked unit hides the unit below it, also where root has no /dev/null. A link to nowhere does too.
  put("usr/lib/systemd/system/masked.service", "ExecStart=/lower\n");
  std::filesystem::create_symlink("/dev/null", root / "etc/systemd/system/masked.service");
  EXPECT_TRUE(read_unit(root, "masked.service").empty());
  // Drop-ins of all services, which the unit's own drop-in of the same name hides.
  put("usr/local/lib/systemd/system/y.service", "ExecStart=/y\n");
  put("etc/systemd/system/service.d/10-a.conf", "LimitMEMLOCK=64K\n");
  put("etc/systemd/system/service.d/20-b.conf", "ExecStart=\nExecStart=/hidden\n");
  put("usr/lib/systemd/system/y.service.d/20-b.conf", "ExecStart=\nExecStart=/z\n");
  EXPECT_TRUE(read_unit(root, "none.service").empty());
  const Unit other = read_unit(root, "y.service");
  EXPECT_EQ(unit_memlock(other), 65536U);
  ASSERT_TRUE(exec_start(other, {}));
  EXPECT_EQ(exec_start(other, {})->words, Words{"/z"});
  std::filesystem::remove_all(root);
}

TEST(Unit, ReturnsLastMemlock) {
  EXPECT_EQ(unit_memlock(parse_unit("[Service]\nLimitMEMLOCK=64K\n", "/u")), 65536U);
  EXPECT_EQ(unit_memlock(parse_unit("LimitMEMLOCK=64K\n  LimitMEMLOCK=8M:infinity\n", "/u")), UINT64_MAX);
  EXPECT_EQ(unit_memlock(parse_unit("LimitMEMLOCK=1G:2G", "/u")), 2ULL << 30);
  EXPECT_EQ(unit_memlock(parse_unit("LimitMEMLOCK=65536", "/u")), 65536U);
  EXPECT_EQ(unit_memlock(parse_unit("#LimitMEMLOCK=64K\nLimitNOFILE=1", "/u")), std::nullopt);
  EXPECT_EQ(unit_memlock(parse_unit("LimitMEMLOCK=much", "/u")), std::nullopt);
}

}  // namespace
}  // namespace hook
