#define NAME other_name
int named(int);
#pragma redefine_extname named NAME
int caller(int x) { return named(x) + __LINE__; }
