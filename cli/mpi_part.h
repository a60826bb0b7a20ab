// What the program asks of regccrf_mpi.so.
#pragma once

extern "C" {
void regccrf_mpi_start(int* rank, int* count);
void regccrf_mpi_add_up(double* numbers, long long count);  // in place, the same result in every process
void regccrf_mpi_finish(void);
}

using regccrf_mpi_start_t = decltype(&regccrf_mpi_start);
using regccrf_mpi_add_up_t = decltype(&regccrf_mpi_add_up);
using regccrf_mpi_finish_t = decltype(&regccrf_mpi_finish);
