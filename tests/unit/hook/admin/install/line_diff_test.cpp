#include "hook/admin/install/line_diff.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hook {
namespace {

// Numbered lines from first to last.
std::string numbered(int first, int last) {
  std::string text;
  for (int i = first; i <= last; ++i)
    text += std::to_string(i) + "\n";
  return text;
}

TEST(UnifiedDiff, IsEmptyForEqualTexts) {
  EXPECT_EQ(unified_diff("/f", "a\n", "a\n"), "");
  EXPECT_EQ(unified_diff("/f", std::nullopt, std::nullopt), "");
}

TEST(UnifiedDiff, ListsAllLinesOfNewAndOfRemovedFile) {
  EXPECT_EQ(unified_diff("/f", std::nullopt, "a\nb\n"), "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n");
  EXPECT_EQ(unified_diff("/f", "a\n", std::nullopt), "--- /f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n");
  EXPECT_EQ(unified_diff("/f", std::nullopt, ""), "--- /dev/null\n+++ /f\n");
}

TEST(UnifiedDiff, HasThreeLinesOfContext) {
  EXPECT_EQ(unified_diff("/f", numbered(1, 9), numbered(1, 4) + "x\n" + numbered(6, 9)),
            "--- /f\n+++ /f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n");
  EXPECT_EQ(unified_diff("/f", numbered(1, 9), "x\n" + numbered(1, 9)),
            "--- /f\n+++ /f\n@@ -1,3 +1,4 @@\n+x\n 1\n 2\n 3\n");
}

TEST(UnifiedDiff, JoinsChangesThatShareContext) {
  const std::string near = "x\n" + numbered(2, 7) + "y\n" + numbered(9, 9);
  EXPECT_EQ(unified_diff("/f", numbered(1, 9), near),
            "--- /f\n+++ /f\n@@ -1,9 +1,9 @@\n-1\n+x\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+y\n 9\n");
  const std::string far = "x\n" + numbered(2, 8) + "y\n";
  EXPECT_EQ(unified_diff("/f", numbered(1, 9), far),
            "--- /f\n+++ /f\n@@ -1,4 +1,4 @@\n-1\n+x\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+y\n");
}

TEST(UnifiedDiff, MarksLastLineWithoutNewline) {
  EXPECT_EQ(unified_diff("/f", "a", "a\n"), "--- /f\n+++ /f\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
}

TEST(UnifiedDiff, ReportsVeryLargeChangeAsOneHunk) {
  const std::string diff = unified_diff("/f", numbered(1, 5000), numbered(5001, 10000));
  EXPECT_NE(diff.find("@@ -1,5000 +1,5000 @@\n-1\n"), std::string::npos);
}

TEST(WithoutChanges, RestoresTextThatWasNotChanged) {
  EXPECT_EQ(without_changes("a\nb\n", "a\nx\nb\n", "a\nx\nb\n"), "a\nb\n");
  EXPECT_EQ(without_changes("", "x\n", "x\n"), "");
  EXPECT_EQ(without_changes("a", "a\nx\n", "a\nx\n"), "a");
}

TEST(WithoutChanges, KeepsChangesOfOtherLines) {
  const std::string before = "1\n2 = old\n3\n4\n5\n";
  const std::string after = "1\n2 = new\n3\n4\nblock\n5\n";
  EXPECT_EQ(without_changes(before, after, "first\n" + after + "last\n"), "first\n" + before + "last\n");
  EXPECT_EQ(without_changes(before, after, "1\n2 = new\n4\nblock\n5\n"), "1\n2 = old\n4\n5\n");
  // Directly before and behind a line of these changes.
  EXPECT_EQ(without_changes(before, after, "1\n2 = new\n3\n4\nx\nblock\ny\n5\n"), "1\n2 = old\n3\n4\nx\ny\n5\n");
}

TEST(WithoutChanges, RefusesChangeOfSameLines) {
  const std::string before = "1\n2\n3\n";
  const std::string after = "1\nx\ny\n2\n3\n";
  EXPECT_EQ(without_changes(before, after, "1\nx\n2\n3\n"), std::nullopt);
  EXPECT_EQ(without_changes(before, after, "1\nx\nz\ny\n2\n3\n"), std::nullopt);
  EXPECT_EQ(without_changes(before, after, "something else\n"), std::nullopt);
  // A removed line leaves no trace, so a change at its place is refused.
  EXPECT_EQ(without_changes("1\n2\n3\n", "1\n3\n", "1\nx\n3\n"), std::nullopt);
}

TEST(HasAddedLine, IgnoresBlankLinesAndLinesOfBefore) {
  EXPECT_TRUE(has_added_line("a\n", "a\n  x\n\n", "b\nx\n"));
  EXPECT_FALSE(has_added_line("a\n", "a\nx\n\n", "a\n\nb\n"));
}

}  // namespace
}  // namespace hook
