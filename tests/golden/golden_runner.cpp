// golden_runner PROGRAM CASE: runs one case and prints the differences.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <set>

#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "golden/golden_case.hpp"
#include "support/process.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace golden {
namespace {

using test_support::Outcome;
using test_support::TempDir;

constexpr std::array<std::string_view, 2> kUserConfs = {"/.nccl.conf", "/.rccl.conf"};

class Runner {
 public:
  Runner(std::string program, Case one) : program_(std::move(program)), case_(std::move(one)) {}

  int run() {
    if (case_.expected) {
      run_snapshot();
      if (case_.not_as_tree.empty()) run_trees();
    } else {
      run_command();
    }
    return failed_ ? 1 : 0;
  }

 private:
  void fail(std::string_view where, std::string_view what) {
    failed_ = true;
    fmt::print("{}: {}\n", where, what);
  }

  Outcome start(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
    test_support::Command command;
    command.argv = {program_};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : environment)
      command.environment.push_back(name + "=" + value);
    command.input = case_.input;
    return test_support::run(command);
  }

  // Checks that `text` has each part. stream: its name.
  void check_parts(std::string_view where, std::string_view stream, const std::string& text,
                   const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      if (!contains(text, part)) fail(where, fmt::format("{}: expected `{}`, got\n{}", stream, part, text));
  }

  void check_absent(std::string_view where, std::string_view stream, const std::string& text,
                    const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      if (contains(text, part)) fail(where, fmt::format("{}: has `{}`:\n{}", stream, part, text));
  }

  // Checks that the run has ended by itself, with the expected code and messages.
  void check_end(std::string_view where, const Outcome& outcome) {
    if (outcome.timed_out) return fail(where, "did not end");
    if (outcome.signal != 0) fail(where, fmt::format("ended by signal {}\n{}", outcome.signal, outcome.err));
    if (outcome.exit_code != case_.exit_code)
      fail(where, fmt::format("exit code: expected {}, got {}\n{}", case_.exit_code, outcome.exit_code, outcome.err));
    check_parts(where, "stderr", outcome.err, case_.stderr_parts);
  }

  void check_answer(std::string_view where, const Outcome& outcome, Source source) {
    check_end(where, outcome);
    const Json answer = Json::parse(outcome.out, nullptr, false);
    if (answer.is_discarded()) return fail(where, "stdout is not one JSON object:\n" + outcome.out + outcome.err);
    for (const std::string& difference : differences(*case_.expected, answer, source))
      fail(where, difference);
    if (source == Source::kSnapshot) check_second_run(answer);
  }

  // Runs again with the exports of the first run as environment, as in a nested entrypoint: they are kept, right, and
  // lead to the same choice.
  void check_second_run(const Json& first) {
    if (case_.exit_code != 0) return;
    const bool has_values = case_.snapshot.contains("env") || case_.snapshot.contains("conf");
    for (const bool replace : {false, true}) {
      const std::string where = replace ? "second run, --override" : "second run";
      Json snapshot = case_.snapshot;
      for (const auto& [name, value] : first["env"].items())
        snapshot["env"][name] = value;
      const TempDir dir;
      test_support::write_file(dir / "snapshot.json", snapshot.dump(1));
      auto arguments = arguments_with({"--snapshot", dir / "snapshot.json"});
      if (replace) arguments.emplace_back("--override");
      const Json second = Json::parse(start(arguments, {}).out, nullptr, false);
      if (second.is_discarded()) return fail(where, "stdout is not one JSON object");
      for (const auto& [name, value] : first["env"].items()) {
        if (name.starts_with("RDMA_INIT_")) continue;
        const bool wrong = second["kept"].contains(name) && !second["kept"][name]["problem"].is_null();
        // --override can replace a value of the user, and the exports then follow it.
        const bool follows = replace && has_values;
        if (wrong || (second["env"].value(name, value) != value && !follows))
          fail(where, fmt::format("{}={} is not kept as right: {}", name, value.dump(), second["kept"].dump()));
      }
      // --override can replace more wrong values of the user than the first run.
      if (replace && has_values) continue;
      for (std::size_t i = 0; i < first["ports"].size(); ++i) {
        for (const char* key : {"used", "gid_index"}) {
          const bool compares = key[0] == 'u' || first["ports"][i]["used"] == true;
          if (compares && first["ports"][i][key] != second["ports"][i][key])
            fail(where, fmt::format("{}: {} and then {}", key, first["ports"][i].dump(), second["ports"][i].dump()));
        }
      }
      if (!replace && second["warnings"].size() > first["warnings"].size())
        fail(where, "has more warnings: " + second["warnings"].dump());
    }
  }

  std::vector<std::string> arguments_with(std::initializer_list<std::string> more) const {
    std::vector<std::string> arguments = {"env", "--format", "json"};
    arguments.insert(arguments.end(), case_.args.begin(), case_.args.end());
    arguments.insert(arguments.end(), more);
    return arguments;
  }

  void run_snapshot() {
    const TempDir dir;
    test_support::write_file(dir / "snapshot.json", case_.snapshot.dump(1));
    check_answer("snapshot", start(arguments_with({"--snapshot", dir / "snapshot.json"}), {}), Source::kSnapshot);
    const auto report = [&](std::vector<std::string> arguments) {
      for (const std::string& argument : {std::string("--snapshot"), dir / "snapshot.json"})
        arguments.push_back(argument);
      arguments.insert(arguments.end(), case_.args.begin(), case_.args.end());
      return start(arguments, {});
    };
    check_report(report({"doctor", "--all"}).out);
    const Outcome brief = report({"doctor"});
    check_lines(brief.out);
    check_parts("snapshot", "doctor", unwrapped(brief.out), case_.report);
    check_absent("snapshot", "doctor", unwrapped(brief.out), case_.not_in_report);
    if (case_.fit && *case_.fit != (brief.exit_code == 0)) fail("doctor", "the verdict is wrong:\n" + brief.out);
    check_causes(Json::parse(report({"doctor", "--json"}).out, nullptr, false));
  }

  // Checks that doctor --json has the expected causes, and that each finding and each port that is not used has one.
  // After the first check, which is that of the ports, the checks are in the order of attention.
  void check_causes(const Json& answer) {
    if (answer.is_discarded()) return fail("doctor --json", "stdout is not one JSON object");
    constexpr std::array kOrder = {"bad", "slow", "note", "good"};
    std::set<std::string> causes;
    std::ptrdiff_t last = 0;
    for (const Json& check : answer["checks"]) {
      causes.insert(check["name"].get<std::string>());
      if (&check == &answer["checks"].front()) continue;
      const auto* const place = std::ranges::find(kOrder, check["verdict"].get<std::string>());
      if (place - kOrder.begin() < last) fail("doctor --json", "the order of attention is wrong: " + check.dump());
      last = place - kOrder.begin();
    }
    for (const Json& port : answer["ports"])
      if (port["used"] == false) causes.insert(port.value("cause", std::string()));
    if (causes.contains("")) fail("doctor --json", "a cause has no name:\n" + answer.dump(1));
    for (const std::string& cause : case_.causes)
      if (!causes.contains(cause)) fail("doctor --json", fmt::format("lacks the cause {}:\n{}", cause, answer.dump(1)));
  }

  // Checks the text of doctor: no line is wider than a terminal, except for lines with one word and lines of variables,
  // which users copy. A remedy of ports appears once.
  void check_report(const std::string& text) {
    if (!contains(text, "\nPorts\n")) return fail("doctor", "no report:\n" + text);
    check_lines(text);
    constexpr std::string_view kRemedy = "remedy: ";
    std::set<std::string> remedies;
    for (std::size_t at = text.find(kRemedy); at != std::string::npos; at = text.find(kRemedy, at + 1)) {
      // The first words: the rest may be wrapped in another place.
      const bool repeated = !remedies.insert(text.substr(at, 52)).second;
      if (repeated && at > text.find("\nPorts\n")) fail("doctor", "a remedy is repeated:\n" + text);
    }
  }

  void check_lines(const std::string& text) {
    for (const std::string_view line : base::split(text, '\n')) {
      const std::string_view words = base::trim(line);
      const bool is_variable = line.starts_with("  ") && words.find('=') < words.find(' ');
      if (line.size() > 80 && !is_variable && words.find(' ') != std::string_view::npos)
        fail("doctor", fmt::format("{} columns: {}", line.size(), line));
    }
  }

  // Runs from a sparse tree, like a prepared view, and from a tree with every slot, like a kernel's.
  void run_trees() {
    auto inventory = fabric::parse_snapshot(case_.snapshot.dump());
    if (!inventory) return fail("tree", inventory.error().message);
    // Without a device id in the snapshot, no two HCAs are known to be equal, and they must not be equal in the tree.
    unsigned number = 0x2000;
    for (fabric::Hca& hca : inventory->hcas)
      if (!hca.device_id) hca.device_id = fmt::format("0x{:04x}", number++);
    auto environment = inventory->env.value_or(std::map<std::string, std::string>());
    environment.emplace("HOME", "/nonexistent");
    for (const auto& [path, text] : inventory->conf.value_or(std::map<std::string, std::string>())) {
      for (const std::string_view name : kUserConfs)
        if (path.ends_with(name)) environment["HOME"] = path.substr(0, path.size() - name.size());
    }
    for (const bool full : {false, true}) {
      const TempDir dir;
      test_support::lay_out(*inventory, dir.path(), {.full = full});
      test_support::write_file(dir / "etc/passwd", fmt::format("u:x:{}:1::{}:\n", ::getuid(), environment["HOME"]));
      check_answer(full ? "full tree" : "sparse tree",
                   start(arguments_with({"--wait", "0", "--root", dir.path()}), environment), Source::kTree);
    }
  }

  static void replace_dir(std::string& text, const TempDir& dir) {
    constexpr std::string_view kPlace = "@DIR@";
    for (std::size_t at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace))
      text.replace(at, kPlace.size(), dir.path());
  }

  void run_command() {
    const TempDir dir;
    if (!case_.snapshot.is_null()) {
      test_support::write_file(dir / "node.json", case_.snapshot.dump(1));
      auto inventory = fabric::parse_snapshot(case_.snapshot.dump());
      if (!inventory) return fail("command", inventory.error().message);
      test_support::lay_out(*inventory, dir / "node", {.full = true});
    }
    for (const auto& [name, content] : case_.files)
      test_support::write_file(dir / name, content);
    for (std::string& argument : case_.args)
      replace_dir(argument, dir);
    for (auto& [name, value] : case_.environment)
      replace_dir(value, dir);
    const Outcome outcome = start(case_.args, case_.environment);
    check_end("command", outcome);
    if (case_.stdout_text && outcome.out != *case_.stdout_text)
      fail("command", fmt::format("stdout: expected\n{}got\n{}", *case_.stdout_text, outcome.out));
    // Text of doctor is wrapped, and a part with a line break is of the text as it is.
    const std::string line = unwrapped(outcome.out);
    for (const std::string& part : case_.stdout_parts) {
      if (!contains(outcome.out, part)) check_parts("command", "stdout", line, {part});
    }
    check_absent("command", "stdout", line, case_.not_in_stdout);
  }

  std::string program_;
  Case case_;
  bool failed_ = false;
};

}  // namespace
}  // namespace golden

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: golden_runner PROGRAM CASE\n", stderr);
    return 2;
  }
  try {
    return golden::Runner(argv[1], golden::read_case(argv[2])).run();
  } catch (const std::exception& error) {
    fmt::print("{}: {}\n", argv[2], error.what());
    return 1;
  }
}
