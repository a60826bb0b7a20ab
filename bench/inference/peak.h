// What arithmetic alone allows: the rate of multiply–adds that one thread reaches with all its operands in registers.
#pragma once

namespace regccrf::bench {

double peak_products_per_second();  // float32

}  // namespace regccrf::bench
