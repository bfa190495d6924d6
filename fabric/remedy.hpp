// Remedies that follow from an errno, whatever was done.
#pragma once

#include <string>

#include "fabric/result.hpp"

namespace fabric {

// The remedy to print with an error; empty: none is known. If the message has the text of EMFILE or ENFILE, a limit
// of open files is the cause whatever the error's own hint suggests, so that its remedy replaces the hint.
// otherwise: the remedy if none is known. Callers pass it rather than write `own.empty() ? otherwise : own` in a braced
// initializer, whose result GCC 12 destroys twice.
std::string remedy_of(const Error& error, const char* otherwise = "");

}  // namespace fabric
