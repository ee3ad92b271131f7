#ifndef DEEP_H
#define DEEP_H
#include "../inc/level.h"
#define DEEP(x) (once(x) + LEVEL_OF(x))
#define INCLUDED_FROM __FILE__
static inline int deeper(int x) { return DEEP(x) * __LINE__; }
#endif
