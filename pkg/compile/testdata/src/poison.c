#pragma GCC poison secret
int secret(int x) { return x; }
