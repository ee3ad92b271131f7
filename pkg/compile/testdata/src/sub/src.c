#include "../once.h"
#include "deep.h"
#ifdef NAME
const char *name = NAME;
#endif
const char *file = __FILE__;
int src(int x) { return deeper(x); }
