/* The program for IPv4. */
#define V6 0
#include "steering.h"
