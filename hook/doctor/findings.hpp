// What `rdma-hook doctor` says of the node. Pure values.
#pragma once

#include <string>
#include <vector>

namespace hook {

enum class Grade { kNote, kWarning, kBroken };

struct Finding {
  Grade grade = Grade::kWarning;
  std::string object;  // "mlx5_3:1", "/dev/infiniband/uverbs0"
  std::string message;
  std::string remedy;
};

struct Check {
  std::string name;
  std::string summary;  // what was looked at, for who finds nothing wrong
  std::vector<Finding> findings;
  bool looked = true;  // false: the summary says why not
};

}  // namespace hook
