// How many float multiply-adds a second one core of this machine does, measured.
#pragma once

double measured_products_per_second();
