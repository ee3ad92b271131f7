#define LEVEL 1
#pragma push_macro("LEVEL")
#undef LEVEL
#define LEVEL 77
int pushed = LEVEL;
#pragma pop_macro("LEVEL")
int popped = LEVEL;
