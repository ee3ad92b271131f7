#include "no/such.h"
