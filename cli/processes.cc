#include "cli/processes.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <filesystem>

#include "cli/mpi_part.h"
#include "regccrf/error.h"

namespace regccrf::cli {

namespace {

// What Open MPI, MPICH and its relatives tell the processes that they start.
bool under_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    const char* size = std::getenv(name);
    if (size && std::atoi(size) > 1) return true;
  }
  return false;
}

// Beside the program, or where an installation puts it.
std::string path_of_part() {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path();
  const fs::path beside = folder / "regccrf_mpi.so";
  return fs::exists(beside, code) ? beside : folder / REGCCRF_MPI_INSTALLED;
}

template <class Function>
Function find(void* part, const char* name) {
  return reinterpret_cast<Function>(::dlsym(part, name));
}

}  // namespace

ProcessGroup::ProcessGroup() {
  if (!under_mpirun()) return;
  const std::string path = path_of_part();
  void* part = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // global: MPI loads parts of its own that need it
  if (!part) {
    throw Error("mpirun started this program, and its MPI part cannot be loaded (" + std::string(::dlerror()) +
                "); build where MPI is installed (Debian: libopenmpi-dev), or train with one process");
  }
  const auto start = find<regccrf_mpi_start_t>(part, "regccrf_mpi_start");
  const auto add_up = find<regccrf_mpi_add_up_t>(part, "regccrf_mpi_add_up");
  finish_ = find<regccrf_mpi_finish_t>(part, "regccrf_mpi_finish");
  if (!start || !add_up || !finish_) throw Error(path + " is not the MPI part of this program");
  start(&processes_.rank, &processes_.count);
  processes_.add_up = [add_up](std::span<double> numbers) {
    add_up(numbers.data(), static_cast<long long>(numbers.size()));
  };
}

// After an error the process just ends, and mpirun ends the others, who would wait for it.
ProcessGroup::~ProcessGroup() {
  if (finish_ && std::uncaught_exceptions() == 0) finish_();
}

}  // namespace regccrf::cli
