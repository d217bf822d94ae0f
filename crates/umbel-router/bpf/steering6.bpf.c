/* The program for IPv6. */
#define V6 1
#include "steering.h"
