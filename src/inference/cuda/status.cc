// What a device left in its status records, as an error.
#include "inference/errors.h"
#include "regccrf/cuda.h"

namespace regccrf::cuda {

namespace {

Error outside_gold(const char* operation, std::int64_t sequence, const Status& status) {
  if (status.position < 0) return forbidden_gold_error(operation, sequence);
  const std::string what = status.position == status.length
                               ? "end too early, at position " + std::to_string(status.length)
                               : "leave the language at position " + std::to_string(status.position);
  return Error(at(operation, sequence) + ": the correct labels " + what, ErrorKind::outside,
               {sequence, status.position});
}

}  // namespace

Error status_error(const char* operation, const Constraint& constraint, std::int64_t sequence, const Status& status) {
  switch (static_cast<Outcome>(status.outcome)) {
    case Outcome::bad_score:
      return Error(at(operation, sequence) + " has an emission that is NaN or +inf at position " +
                       std::to_string(status.position) + ", label " + constraint.labels().name(status.label),
                   ErrorKind::invalid, {sequence, status.position});
    case Outcome::bad_transition:
      return Error(at(operation) + "transitions, start or end scores hold NaN or +inf");
    case Outcome::impossible:
      return impossible_error(operation, sequence, status.length, constraint);
    case Outcome::outside:
      return outside_gold(operation, sequence, status);
    case Outcome::fine:
      break;
  }
  return Error(at(operation, sequence) + ": there is no error of status " + std::to_string(status.outcome));
}

}  // namespace regccrf::cuda
