// Memory that this process may still take.
#pragma once

namespace regccrf::cli {

// Bytes: what the machine, the control group and the address-space limit leave; infinity where none of them says.
double free_memory();

}  // namespace regccrf::cli
