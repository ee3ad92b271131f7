const char *base = __BASE_FILE__;
