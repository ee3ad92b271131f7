#include <system.h>
int use(int x) { return from_system(x); }
