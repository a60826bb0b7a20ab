// regccrf_mpi.so: sums over processes; the one file that includes MPI.
#include "cli/mpi_part.h"

#include <mpi.h>

#include <algorithm>

extern "C" {

void regccrf_mpi_start(int* rank, int* count) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, count);
}

// Summed in one process and sent out again, so that all have the same bits and take the same decisions.
void regccrf_mpi_add_up(double* numbers, long long count) {
  constexpr long long piece = 1 << 24;  // MPI counts in int
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (long long at = 0; at < count; at += piece) {
    const int size = static_cast<int>(std::min(piece, count - at));
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : numbers + at, numbers + at, size, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(numbers + at, size, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
}

void regccrf_mpi_finish(void) { MPI_Finalize(); }
}
