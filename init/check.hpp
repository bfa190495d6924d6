// A finding about a container: a check of doctor, or a warning of the decision.
#pragma once

#include <string>
#include <string_view>

namespace init {

// The effect of a finding on a job, in the order of attention. The effect follows from certainty, and not from the
// program or user that set a value.
enum class Verdict {
  kGood,
  kNote,  // odd, perhaps intended, or of an effect that is not certain
  kSlow,  // the job works with fewer HCAs or without RDMA, or it may hang
  kBad    // the job certainly fails: the container is not fit
};

struct Check {
  std::string_view name;  // stable name of the cause for programs that read JSON; a literal
  Verdict verdict = Verdict::kGood;
  std::string message;
  std::string remedy = {};
};

// Returns message and remedy in one line.
inline std::string line_of(const Check& check) {
  return check.remedy.empty() ? check.message : check.message + "; remedy: " + check.remedy;
}

}  // namespace init
