const char *date = __DATE__ " " __TIME__;
