#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/install/plan_parts.hpp"

namespace hook {

// What plan_containerd() reads.
std::vector<std::string> containerd_files(const EngineFacts& facts);
// Adds what containerd needs.
fabric::Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts);

// Sets the form that fits this config.toml at first sight; the engine has the last word.
void guess_form(EngineFacts& facts, std::string_view config);
// The other form.
void change_form(EngineFacts& facts);

// What containerd's configuration needs, as tables.
std::string containerd_tables(const EngineFacts& facts);

}  // namespace hook
