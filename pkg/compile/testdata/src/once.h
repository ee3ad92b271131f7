#pragma once
#define ONCE 11
static inline int once(int x) { return x + ONCE; }
