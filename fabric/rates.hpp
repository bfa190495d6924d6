// The rates of a set of ports, to compare it with another set. Pure.
#pragma once

namespace fabric {

// Only the ports with the highest rate count, because slower ports are not used beside them.
struct Rates {
  double highest = 0;  // Gb/s
  double total = 0;    // Gb/s, of the ports with the highest rate
  void add(double rate) {
    if (rate < highest) return;
    total = rate > highest ? rate : total + rate;
    highest = rate;
  }
};

// Returns true if a front-end NIC is faster than each rail, and the rails have at least its rate together. The rule of
// the highest rate would then drop the rails. front_end: the ports of the default route. rails: the other ports.
inline bool hides_rails(const Rates& front_end, const Rates& rails) {
  return rails.highest < front_end.highest && rails.total >= front_end.total;
}

}  // namespace fabric
