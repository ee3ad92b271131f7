#pragma GCC system_header
#define SYSTEM_MACRO(x) ((unsigned)(x) < 0)
static inline int from_system(int unused) { int also; return 0; }
