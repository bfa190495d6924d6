// The function of a fuzz target, and the demands that it checks. A broken demand is a crash, which libFuzzer records.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <string_view>

#include "base/result.hpp"

namespace fuzz {

// Checks one input: `data` has the same bytes as `text`. Each target defines it; libFuzzer calls it through the entry
// point in require.cpp.
void run(std::string_view text, FuzzedDataProvider data);

// Aborts with a message unless the demand holds. detail: the values, for the log.
void require(bool holds, std::string_view demand, std::string_view detail = {});

// Demands a text without line breaks and terminal control: a message about a hostile name must stay on its line.
void require_one_line(std::string_view text, std::string_view what);

// Demands a message of one line that is not empty.
void require_refusal(const base::Error& error, std::string_view what);

}  // namespace fuzz
