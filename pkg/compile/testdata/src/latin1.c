const char *s = "café";
const char c = '\xe9';
