// One grant as DIR/grants/KEY.json keeps it: a line of JSON, and one with its checksum() as 16 hex digits. Every member
// that is not listed as optional is there, and no other.
//
// {"format": 2, "owner": {"kind", "key", "label", "netns": {"dev", "ino", "path"}}, "since",
//  "hcas": [{"name", "mode", "units", "limit", "held_only", "device",
//            "open": {"index", "contexts": [N], "node": {"major", "minor"}}}],
//  "users": [{"key", "id", "bundle", "pod", "view", "name", "process": {"pid", "start_time"}, "cgroup": {...},
//             "state": {...}, "settled", "ended", "worker": {"pid", "start_time", "change"}, "hcas": [...]}]}
// Optional: "netns", "directory" in it, "limit", "held_only", "device", "open", "index" and "node" in it, and of a user
// all but "key", "id" and "settled".
//
// A record of another format is an error: /run is empty after a boot, and an upgrade or downgrade begins with a drain.
#pragma once

#include <string>
#include <string_view>

#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

std::string grant_text(const StoredGrant& grant);
// What parse_grant()'s errors begin with.
std::string unread_grant(const std::string& path);
// path: for messages. Errors: EPROTONOSUPPORT, it has another format. EBADMSG: the checksum is another one; JSON's; a
// member that is missing, of another type or range, or not known; a key that is not `key`. The hint is the remedy.
Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key);

}  // namespace hook
