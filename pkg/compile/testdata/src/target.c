#pragma GCC target("avx2")
#ifdef __AVX2__
int yes;
#else
int no;
#endif
