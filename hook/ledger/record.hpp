// The record of a grant, DIR/grants/KEY.json: one line of JSON, and one line with its checksum() as 16 hex digits. Each
// member must be present unless it is listed as optional, and no other member may be.
//
// {"format": 2, "owner": {"kind", "key", "label", "netns": {"dev", "ino", "path"},
//                         "claim": {"space", "name", "token", "pods", "hcas": [{"name", "device", ...}]}}, "since",
//  "hcas": [{"name", "mode", "units", "limit", "held_only", "device", "claim",
//            "open": {"index", "contexts": [N], "ranges": "N,N-N", "node": {"major", "minor"}}}],
//  "users": [{"key", "id", "bundle", "pod", "view", "name", "process": {"pid", "start_time"}, "cgroup": {...},
//             "state": {...}, "settled", "ended", "worker": {"pid", "start_time", "change"}, "hcas": [...]}]}
// Optional: "netns", and "directory" in it; "claim"; "limit", "held_only", "device" and "open", and "index", "ranges"
// and "node" in "open"; all members of a user but "key", "id" and "settled".
//
// "contexts" is always empty; an earlier version listed there each id that is now in "ranges".
//
// An older program knows no claims: it refuses the record of a claim and of a grant that uses one, and holds the HCAs.
//
// A record of another format is an error. This program converts none, because /run is empty after a boot, and the
// administrator drains the node before an upgrade or downgrade.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// Returns the text of a record.
std::string grant_text(const StoredGrant& grant);
// Returns the text with which the errors of parse_grant() begin.
std::string unread_grant(const std::string& path);
// Parses a record. path: for messages. Errors: EPROTONOSUPPORT, another format; EBADMSG, a wrong checksum, no JSON, a
// member that is missing, unknown, or of another type or range, or a key that is not `key`. The hint is the remedy.
Result<StoredGrant> parse_grant(std::string_view text, const std::string& path, std::string_view key);

}  // namespace hook
