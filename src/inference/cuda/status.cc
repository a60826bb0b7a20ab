// What a device left in its status records, in words.
#include "inference/errors.h"
#include "regccrf/cuda.h"

namespace regccrf::cuda {

std::string status_message(const char* operation, const Constraint& constraint, std::int64_t sequence,
                           const Status& status) {
  const std::string where = std::string("[") + operation + "] sequence " + std::to_string(sequence);
  switch (static_cast<Outcome>(status.outcome)) {
    case Outcome::fine:
      return "";
    case Outcome::bad_score:
      return where + " has an emission that is NaN or +inf at position " + std::to_string(status.position) +
             ", label " + constraint.labels().name(status.label);
    case Outcome::bad_transition:
      return std::string("[") + operation + "] transitions, start or end scores hold NaN or +inf";
    case Outcome::impossible:
      return impossible_error(operation, sequence, status.length, constraint).what();
    case Outcome::outside:
      if (status.position < 0) return where + ": gold is in the language, and its score is −inf";
      if (status.position == status.length)
        return where + ": gold ends at position " + std::to_string(status.length) + ", where the language goes on";
      return where + ": gold leaves the language at position " + std::to_string(status.position);
  }
  return where + ": unknown status";
}

}  // namespace regccrf::cuda
