#include "once.h"
#include "poison.h"
#include <limits.h>
int poisoned(int x) { return once(x); }
