// The configuration files: their owners, the output of check-config, the samples and the schema.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/snapshot.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/program/commands.hpp"
#include "support/inventories.hpp"
#include "support/rails.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace {

using base::Json;
using namespace test_support;

std::string error_of(const hook::ConfigPaths& paths) {
  const auto texts = hook::read_config_texts(paths);
  return texts ? "" : texts.error().message + "; " + texts.error().hint;
}

std::string checked(const hook::ConfigPaths& paths, bool json, int expected_exit) {
  testing::internal::CaptureStdout();
  hook::NodeSettings node;
  node.config = paths;
  EXPECT_EQ(hook::check_config(node, json), expected_exit);
  return testing::internal::GetCapturedStdout();
}

TEST(HookConfigFiles, WarnsAboutPoolWithoutHcaOfSnapshot) {
  const TempDir dir;
  write_file(dir / "config.json",
             R"({"pools": [{"name": "tpyo", "selectors": {"ifNames": ["none9"]}}, {"name": "all"}]})");
  hook::NodeSettings node;
  node.config = {dir / "config.json", dir / "d", true, dir / "none"};
  write_file(dir / "node.json", fabric::write_snapshot(rails(2)));
  node.snapshot = dir / "node.json";
  testing::internal::CaptureStdout();
  EXPECT_EQ(hook::check_config(node, false), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.substr(0, text.find("\nok: ")),
            "pool tpyo: warning: no HCA of this node is in it; remedy: compare the pool's selectors with `rdma-hook "
            "devices`");
}

TEST(HookConfigFiles, ReadsDropInsByName) {
  const TempDir dir;
  write_file(dir / "config.json", R"({"rails": ["a"]})");
  write_file(dir / "d/20-b.json", R"({"rails": ["c"]})");
  write_file(dir / "d/10-a.json", R"({"rails": ["b"], "ipc_lock": false})");
  write_file(dir / "d/30-c.json~", "broken");
  write_file(dir / "d/.40.json", "broken");
  const auto config = test_support::must(hook::read_config({dir / "config.json", dir / "d", true}));
  EXPECT_EQ(config.rails, test_support::rails_of(R"(["c"])"));
  EXPECT_FALSE(config.ipc_lock);
}

TEST(HookConfigFiles, AcceptsMissingDefaultFiles) {
  const auto config = test_support::must(
      hook::read_config({"/etc/rdma-init-no-such/config.json", "/etc/rdma-init-no-such/conf.d", false}));
  EXPECT_EQ(config, hook::Config());
}

// The paths of the node's programs are tested in tests/node, where every directory belongs to root.
TEST(HookConfigFiles, NamedFileReplacesClusterFile) {
  const TempDir dir;
  write_file(dir / "cluster.json", R"({"ipc_lock": false})");
  write_file(dir / "c", "{}");
  EXPECT_TRUE(test_support::must(hook::read_config({dir / "c", "", true, dir / "cluster.json"})).ipc_lock);
}

TEST(HookConfigFiles, RefusesUnsafeFiles) {
  const TempDir dir;
  const auto file = [&](const char* name) { return "`" + (dir / name) + "`"; };
  // The files are in /tmp: a command could harm other users.
  const std::string other_file = "; use a regular file that only root can change, in a directory of root";
  const std::string other_place = "; use a path in which only root can change each directory";
  for (const char* name : {"good", "open", "theirs", "in/open-dir", "long"})
    write_file(dir / name, "{}");
  write_file(dir / "long", std::string((std::size_t{1} << 20) + 1, ' '));
  ASSERT_EQ(::chmod((dir / "open").c_str(), 0664), 0);
  ASSERT_EQ(::chmod((dir / "in").c_str(), 0775), 0);
  ASSERT_EQ(::symlink("good", (dir / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  const std::string other = "; make it a regular file that root can read, of at most 1 MiB";

  EXPECT_EQ(error_of({dir / "good", "", true}), "");
  EXPECT_EQ(error_of({dir / "none", "", true}),
            "open " + file("none") + ": No such file or directory; create the file or correct its path");
  EXPECT_EQ(error_of({dir / "in", "", true}), file("in") + " is not a regular file" + other);
  EXPECT_EQ(error_of({dir / "open", "", true}), file("open") + " is writable by users other than root" + other_file);
  EXPECT_EQ(error_of({dir / "in/open-dir", "", true}),
            file("in") + " is writable by users other than root" + other_place);
  EXPECT_EQ(error_of({dir / "link", "", true}), file("link") + " is a symbolic link; replace the link by the file");
  EXPECT_EQ(error_of({dir / "fifo", "", true}), file("fifo") + " is not a regular file" + other);
  EXPECT_EQ(error_of({dir / "long", "", true}), file("long") + " is longer than 1048576 bytes" + other);
  if (::geteuid() != 0) GTEST_SKIP() << "chown(2) to another user needs root";
  ASSERT_EQ(::chown((dir / "theirs").c_str(), 1, 0), 0);
  EXPECT_EQ(error_of({dir / "theirs", "", true}), file("theirs") + " belongs to user 1, not to root" + other_file);
  ASSERT_EQ(::chmod((dir / "good").c_str(), 0), 0);
  ASSERT_EQ(::seteuid(1), 0);
  const std::string denied = error_of({dir / "good", "", true});
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(denied.ends_with(": Permission denied; run the command as root")) << denied;
}

// The rules of the file apply to each drop-in, and a refused one does not hide the next.
TEST(HookConfigFiles, RefusesUnsafeDropIns) {
  const TempDir dir;
  for (const char* name : {"config.json", "d/10-open.json", "d/20-fine.json", "elsewhere"})
    write_file(dir / name, "{}");
  ASSERT_EQ(::chmod((dir / "d/10-open.json").c_str(), 0646), 0);
  ASSERT_EQ(::symlink("../elsewhere", (dir / "d/30-link.json").c_str()), 0);
  const std::string open = dir / "d/10-open.json";
  const std::string link = dir / "d/30-link.json";
  EXPECT_EQ(checked({dir / "config.json", dir / "d", true}, false, 1),
            open + ": error: `" + open +
                "` is writable by users other than root; remedy: use a regular file that only root can change, in a "
                "directory of root\n" +
                link + ": error: `" + link + "` is a symbolic link; remedy: replace the link by the file\n");
}

// Any user can make a file in /tmp, so only --config may name one there.
TEST(HookConfigFiles, AcceptsStickyDirectoryOnlyForNamedFile) {
  const TempDir dir;
  const std::string sticky = dir / "sticky";
  write_file(sticky + "/c.json", "{}");
  ASSERT_EQ(::chmod(sticky.c_str(), 01777), 0);
  EXPECT_EQ(error_of({sticky + "/c.json", "", true}), "");
  EXPECT_EQ(
      error_of({sticky + "/c.json", "", false}),
      "`" + sticky + "` is writable by users other than root; use a path in which only root can change each directory");
}

TEST(HookConfigFiles, ReturnsFirstError) {
  const TempDir dir;
  write_file(dir / "c", "{\n\"nodes\": {\"umad\": true},\n\"rail\": []}");
  const auto config = hook::read_config({dir / "c", "", true});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, (dir / "c") + ":3: `rail`: unknown key");
  EXPECT_EQ(config.error().hint, "did you mean `rails`?; `rdma-hook check-config` lists all");
}

TEST(HookConfigFiles, CheckConfigPrintsProblems) {
  const TempDir dir;
  write_file(dir / "bad", "{\n\"rail\": [],\n\"memlock\": \"1MB\"}");
  const std::string bad = checked({dir / "bad", "", true}, false, 1);
  EXPECT_EQ(std::count(bad.begin(), bad.end(), '\n'), 2);
  EXPECT_TRUE(bad.starts_with((dir / "bad") + ":2: error: `rail`: unknown key; remedy: did you mean `rails`?\n"))
      << bad;
  const Json json = Json::parse(checked({dir / "bad", "", true}, true, 1));
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_EQ(json.at("problems").at(0).dump(), Json({{"file", dir / "bad"},
                                                    {"line", 2},
                                                    {"severity", "error"},
                                                    {"message", "`rail`: unknown key"},
                                                    {"remedy", "did you mean `rails`?"}})
                                                  .dump());
  write_file(dir / "fine", R"({"pools": [{"name": "p", "modes": ["hca"]}], "nodes": {"umad": true}})");
  const std::string fine = checked({dir / "fine", "", true}, false, 0);
  EXPECT_NE(fine.find(": warning: "), std::string::npos) << fine;
  EXPECT_NE(fine.find("pools: p (hca)"), std::string::npos) << fine;
  EXPECT_EQ(checked({dir / "none", "", true}, false, 1),
            (dir / "none") + ": error: open `" + (dir / "none") +
                "`: No such file or directory; remedy: create the file or correct its path\n");
}

TEST(HookConfigFiles, AcceptsSamples) {
  for (const char* name : {"8-rail-roce", "infiniband", "ib-sriov", "roce-sriov", "single-nic"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(CONFIG_DIR "/samples/") + name + ".json";
    const auto parsed = hook::parse_config({{path, read_file(path)}});
    for (const auto& problem : parsed.problems)
      ADD_FAILURE() << to_string(problem);
    EXPECT_FALSE(parsed.config.pools.empty());
  }
}

// Returns the keys that the parser knows in an object, from the remedy that lists them if none is near.
std::set<std::string> known_to_parser(const std::string& before, const std::string& after) {
  constexpr std::string_view kKnown = "write one of: ";
  const auto parsed = hook::parse_config({{"c", before + R"("################": 0)" + after}});
  std::set<std::string> keys;
  for (const auto& problem : parsed.problems) {
    if (!problem.remedy.starts_with(kKnown)) continue;
    for (const auto key : base::split(std::string_view(problem.remedy).substr(kKnown.size()), ','))
      keys.emplace(base::trim(key));
  }
  return keys;
}

TEST(HookConfigFiles, SchemaAndParserHaveTheSameKeys) {
  const auto schema = base::parse_json(read_file(CONFIG_DIR "/config.schema.json"), "schema");
  ASSERT_TRUE(schema) << schema.error().message;
  // A new object of the schema needs a row here.
  std::set<std::string> objects;
  for (const auto& [name, value] : schema->at("$defs").items())
    if (value.contains("properties")) objects.insert(name);
  EXPECT_EQ(objects, (std::set<std::string>{"addresses", "devicePlugin", "limits", "network", "nodes", "nri", "pool",
                                            "routing", "runtime", "selectors", "vf", "vfRange"}));
  for (const auto& [pointer, before, after] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"", "{", "}"},
           {"/$defs/pool", "{\"pools\":[{\"name\":\"p\",", "}]}"},
           {"/$defs/selectors", "{\"pools\":[{\"name\":\"p\",\"selectors\":{", "}}]}"},
           {"/$defs/limits", "{\"pools\":[{\"name\":\"p\",\"limits\":{", "}}]}"},
           {"/$defs/network", "{\"networks\":{\"n\":{", "}}}"},
           {"/$defs/addresses", "{\"networks\":{\"n\":{\"addresses\":[{\"subnet\":\"10.0.0.0/8\",", "}]}}}"},
           {"/$defs/routing", "{\"networks\":{\"n\":{\"routing\":{", "}}}}"},
           {"/$defs/vf", "{\"networks\":{\"n\":{\"vf\":{", "}}}}"},
           {"/$defs/vfRange", R"({"networks":{"n":{"vf":{"macs":{"from":"02:00:00:00:00:00","to":"02:00:00:00:00:01",)",
            "}}}}}"},
           {"/$defs/nodes", "{\"nodes\":{", "}}"},
           {"/$defs/runtime", "{\"runtime\":{", "}}"},
           {"/$defs/nri", "{\"nri\":{", "}}"},
           {"/$defs/devicePlugin", "{\"device_plugin\":{", "}}"}}) {
    SCOPED_TRACE(pointer);
    const Json& object = schema->at(Json::json_pointer(pointer));
    EXPECT_EQ(object.at("additionalProperties"), false);
    std::set<std::string> keys;
    for (const auto& [name, value] : object.at("properties").items()) {
      EXPECT_TRUE(value.contains("description") || value.contains("$ref")) << name;
      if (!name.starts_with('$')) keys.insert(name);
    }
    EXPECT_EQ(keys, known_to_parser(before, after));
    // "$schema" and "$comment" are allowed in each object of both.
    EXPECT_TRUE(object.at("properties").contains("$schema") && object.at("properties").contains("$comment"));
    const auto parsed = hook::parse_config({{"c", std::string(before) + R"("$schema":"s","$comment":"c")" + after}});
    for (const auto& problem : parsed.problems)
      ADD_FAILURE() << to_string(problem);
  }
}

TEST(HookConfigFiles, VersionIsCurrentUntilFileChanges) {
  const TempDir dir;
  const hook::ConfigPaths paths{dir / "config.json", dir / "d", false, dir / "cluster"};
  write_file(dir / "config.json", "{}");
  write_file(dir / "d/10.json", "{}");
  // A file that has just changed can change again in the same step of the clock.
  const auto settled = [&] {
    hook::ConfigVersion version;
    for (int round = 0; round < 5000 && !version.is_current(); ++round) {
      usleep(1000);
      version = hook::ConfigVersion(paths);
    }
    return version;
  };
  EXPECT_FALSE(hook::ConfigVersion().is_current());
  const std::function<void()> changes[] = {
      [&] { write_file(dir / "config.json", "[]"); },
      [&] { write_file(dir / "cluster", "{}"); },
      [&] { write_file(dir / "d/20.json", "{}"); },
      [&] { chmod((dir / "d/20.json").c_str(), 0666); },
      [&] { unlink((dir / "d/10.json").c_str()); },
      [&] {
        write_file(dir / "new", "{}");
        rename((dir / "new").c_str(), (dir / "config.json").c_str());
      },
      [&] { unlink((dir / "config.json").c_str()); },
  };
  for (const auto& change : changes) {
    const auto version = settled();
    ASSERT_TRUE(version.is_current());
    change();
    EXPECT_FALSE(version.is_current());
  }
}

TEST(HookConfigFiles, VersionFollowsLinkToDropIns) {
  const TempDir dir;
  write_file(dir / "real/10.json", "{}");
  ASSERT_EQ(symlink("real", (dir / "d").c_str()), 0);
  const hook::ConfigPaths paths{dir / "config.json", dir / "d", false, dir / "cluster"};
  hook::ConfigVersion version;
  for (int round = 0; round < 5000 && !version.is_current(); ++round) {
    usleep(1000);
    version = hook::ConfigVersion(paths);
  }
  ASSERT_TRUE(version.is_current());
  write_file(dir / "real/20.json", "{}");
  EXPECT_FALSE(version.is_current());
}

}  // namespace
