// The processes that mpirun started, if it did. MPI is a part of its own, regccrf_mpi.so beside the program, which is
// loaded only under mpirun: without it the program neither needs nor loads MPI.
#pragma once

#include "regccrf/trainer.h"

namespace regccrf::cli {

class ProcessGroup {
 public:
  ProcessGroup();  // Error under mpirun in a build without MPI
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  const Processes& processes() const { return processes_; }

 private:
  Processes processes_;
  void (*finish_)() = nullptr;
};

}  // namespace regccrf::cli
