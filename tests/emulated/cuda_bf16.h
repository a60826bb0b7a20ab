// Stands in for CUDA's header of that name.
#pragma once

#include "half.h"

using __nv_bfloat16 = emulated::Half<8>;

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
