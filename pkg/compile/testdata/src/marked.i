# 0 "sub/src.c"
# 0 "<built-in>"
# 0 "<command-line>"
# 1 "/usr/include/stdc-predef.h" 1 3 4
# 0 "<command-line>" 2
# 1 "sub/src.c"
# 1 "sub/../once.h" 1
       

static inline int once(int x) { return x + 11; }
# 2 "sub/src.c" 2
# 1 "sub/deep.h" 1


# 1 "sub/../inc/level.h" 1
# 4 "sub/deep.h" 2


static inline int deeper(int x) { return (once(x) + ((x) > 3 ? 1 : 4)) * 6; }
# 3 "sub/src.c" 2



const char *file = "sub/src.c";
int src(int x) { return deeper(x); }
