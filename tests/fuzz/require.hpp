// What a fuzz target demands of the code it runs: a broken demand is a crash that libFuzzer records.
#pragma once

#include <string_view>

namespace fuzz {

// Aborts with a message unless the demand holds. detail: the values, for the log.
void require(bool holds, std::string_view demand, std::string_view detail = {});

// No line break, no terminal control: what is said about hostile names must stay on its line.
void require_one_line(std::string_view text, std::string_view what);

}  // namespace fuzz
