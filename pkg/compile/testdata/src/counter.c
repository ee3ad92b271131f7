#if __COUNTER__ == 0
int a;
#endif
